import types

from lab import device_clock
from lab.device_clock import CudaClock


class Event:
    """An event that passes at once, a millisecond and a half after the one before."""

    made = 0

    def __init__(self, *, enable_timing):
        assert enable_timing
        self.at = None

    def record(self):
        Event.made += 1
        self.at = 1.5004 * Event.made

    def elapsed_time(self, other):
        return other.at - self.at


def test_marks_are_events_with_a_time_and_milliseconds_become_microseconds(monkeypatch):
    fake = types.SimpleNamespace(Event=Event)
    monkeypatch.setattr(device_clock.torch, "cuda", fake)
    clock = CudaClock()
    begin, end = clock.mark(), clock.mark()
    assert clock.microseconds(begin, end) == 1500

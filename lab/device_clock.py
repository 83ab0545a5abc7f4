"""DeviceClock: when the device began and ended something, measured by events in its own order of work.

An event is put into the stream where the host stands now; the device notes the time when it gets there. So a mark costs
the host a microsecond and waits for nothing; the time between two of them is known when both have passed.

Does not: exist for the CPU, where one processor does both and only the order of things is shown.
Source: CUDA events.
"""

from typing import Any, Protocol

import torch


class DeviceClock(Protocol):
    """Marks in the device's order of work."""

    def mark(self) -> Any:
        """Put a mark behind everything that was handed over so far."""
        ...

    def microseconds(self, begin: Any, end: Any) -> int:
        """Return the time between two marks that the device has passed."""
        ...


class CudaClock:
    """Events with a time, on the current stream."""

    def mark(self) -> torch.cuda.Event:
        """Record an event."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def microseconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> int:
        """Return the events' distance, rounded."""
        return round(begin.elapsed_time(end) * 1000)

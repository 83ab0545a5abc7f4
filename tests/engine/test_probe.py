"""The guard tells an observer's exception from the engine's own."""

import pytest

from engine.errors import ProbeError
from engine.probe import ProbeGuard, Stage


class Recording:
    def __init__(self):
        self.got = []

    def emit(self, stage, step, value):
        self.got.append((stage, step, value))


class Failing:
    def emit(self, stage, step, value):
        raise LookupError(step)


def test_a_record_passes_through_unchanged():
    probe, value = Recording(), object()
    ProbeGuard(probe).emit(Stage.PACKED, 3, value)
    assert probe.got == [(Stage.PACKED, 3, value)]


def test_an_exception_is_carried_whole():
    with pytest.raises(ProbeError, match="a probe raised LookupError") as caught:
        ProbeGuard(Failing()).emit(Stage.RAN, 5, None)
    assert isinstance(caught.value.original, LookupError)
    assert caught.value.__cause__ is caught.value.original


def test_the_stages_are_ten_and_in_the_order_of_a_step():
    names = "SCHEDULED RESERVED PADDED GRAPH_CHOSEN PACKED COPIED METADATA RAN SAMPLED COMMITTED"
    assert [stage.name for stage in sorted(Stage)] == names.split()

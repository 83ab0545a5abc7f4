"""Which step --step means."""

import dataclasses

import pytest

from engine.errors import TraceError
from lab.cli.step_number import place_of
from lab.trace import Trace
from tests.lab.sample_steps import sample_header, sample_trace


def numbered(*numbers):
    steps = sample_trace(len(numbers)).steps[: len(numbers)]
    return Trace(sample_header(), [dataclasses.replace(one, step=at) for one, at in zip(steps, numbers, strict=True)])


def test_a_run_from_0_on_has_one_number_for_step_and_place():
    assert [place_of(numbered(0, 1, 2), at) for at in (0, 1, 2, -1, -3)] == [0, 1, 2, 2, 0]


def test_a_step_is_found_by_the_number_that_it_shows():
    trace = numbered(7, 8, 11)
    assert [place_of(trace, at) for at in (7, 8, 11, -1, -3)] == [0, 1, 2, 2, 0]


@pytest.mark.parametrize("number", [0, 9, 12, -4])
def test_a_number_that_is_not_there_is_refused_with_both_ranges(number):
    words = rf"--step must be a step's number, 7 to 11, or -3 to -1, counted from the end, got {number}$"
    with pytest.raises(TraceError, match=words):
        place_of(numbered(7, 8, 11), number)


def test_a_file_without_steps_has_none():
    with pytest.raises(TraceError, match="--step must be left out: the file has no steps, got 0"):
        place_of(numbered(), 0)

import dataclasses

import pytest

from engine.reasons import FallOff
from lab.reason_numbers import reason_arguments
from lab.reasons import fix, row_of, sentence
from lab.snapshot import ConditionView
from tests.lab.sample_steps import decode_step, eager_step


def with_failed(needed, got):
    step = eager_step(0)
    return dataclasses.replace(
        step, path=dataclasses.replace(step.path, conditions=(ConditionView("X", False, needed, got),))
    )


def test_the_numbers_are_those_of_the_step_and_of_the_condition_that_failed():
    found = reason_arguments(with_failed("at most 64 rows", "90"), (1, 8))
    assert (found["rows"], found["contexts"], found["largest"]) == (12, 1, 8)
    assert (found["largest_rows"], found["mode"], found["captured"]) == ("64", "at", "90")
    assert reason_arguments(with_failed("greedy captured", "full"))["mode"] == "greedy"


@pytest.mark.parametrize("step", [decode_step(1), with_failed("", ""), with_failed(" ", "")])
def test_without_a_condition_in_words_there_are_no_numbers_of_it(step):
    found = reason_arguments(step)
    assert (found["largest_rows"], found["mode"], found["largest"]) == ("0", "", 0)


@pytest.mark.parametrize("reason", FallOff)
def test_every_sentence_and_fix_finds_its_numbers(reason):
    found = reason_arguments(eager_step(0), (1, 2))
    assert "{" not in sentence(reason, **found)
    assert (fix(reason, **found) is None) == (row_of(reason).fix is None)

"""A learner's function decides in a live engine."""

import pytest

from engine.errors import ExerciseError
from lab.exercises import check, plug, plugging
from lab.exercises.catalogue import exercise_names, load
from lab.exercises.child import load_answer
from lab.exercises.plugging import open_case
from tests.exercises.answers import answers

ADAPTED = [name for name in exercise_names() if load(name).has_adapter]


def _right(sizes, batch):
    return min((s for s in sizes if s >= batch), default=None)


def test_the_engine_pads_as_the_learners_function_says():
    asked = []

    def mine(sizes, batch):
        asked.append(batch)
        return _right(sizes, batch)

    num_padding = plug("ex16", mine).num_padding_requests
    options = {"num_contexts": 0, "buckets": (2, 4), "enabled": True, "dummy_available": True, "draft_len": 0}
    assert num_padding(num_requests=3, **options) == 1
    assert num_padding(num_requests=9, **options) == 0
    assert asked == [3, 9]


def test_a_counterexample_opens_as_steps_of_a_real_engine(monkeypatch, capsys):
    monkeypatch.setenv("LAB_STATIC", "1")
    check("ex16", _right, rule="b").open({"sizes": [1, 4], "batch": 3})
    assert "Step 0" in capsys.readouterr().out


def test_a_step_that_a_wrong_function_breaks_is_said_beside_the_steps_before_it(monkeypatch, capsys):
    monkeypatch.setenv("LAB_STATIC", "1")
    check("ex16", lambda sizes, batch: max(sizes)).open({"sizes": [1, 4, 8], "batch": 3})
    out = capsys.readouterr().out
    assert "With this function a step failed after 1 good one." in out
    assert "Step 0" in out


@pytest.mark.parametrize("name", ADAPTED)
def test_a_right_answer_serves_every_request_of_its_workload(name, monkeypatch, capsys):
    monkeypatch.setenv("LAB_STATIC", "1")
    exercise = load(name)
    rule = exercise.meta.rules[0].id
    [solution] = answers(exercise, "solution")
    check(name, load_answer(solution.source, solution.name, rule)).open()
    out = capsys.readouterr().out
    assert "a step failed" not in out
    assert "replay" in out


def test_without_the_engines_libraries_the_message_says_what_to_install(monkeypatch):
    report = check("ex16", _right, rule="b")
    monkeypatch.setattr(plugging, "_LLM", "engine.no_such_module")
    with pytest.raises(ExerciseError, match=r"is not installed; `pip install ./stepscope` brings it"):
        report.open()


def test_what_cannot_be_plugged_in_is_said():
    with pytest.raises(ExerciseError, match="has no function to plug in"):
        open_case(load("ex16"), None, None, rule="a")
    without = next((name for name in exercise_names() if name not in ADAPTED), None)
    if without is not None:
        with pytest.raises(ExerciseError, match="cannot be plugged into the engine"):
            plug(without, _right)

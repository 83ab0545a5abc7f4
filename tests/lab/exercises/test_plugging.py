"""A learner's function decides in a live engine."""

import importlib

import pytest

from engine.errors import ExerciseError
from lab.exercises import check, plug, plugging
from lab.exercises.catalogue import exercise_names, load
from lab.exercises.child import load_answer
from lab.exercises.plugging import open_case
from lab.exercises.workload import MOST_REQUESTS
from tests.exercises.answers import answers

STAGED = [name for name in exercise_names() if load(name).has_scene]
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


@pytest.mark.parametrize("name", STAGED)
def test_where_a_function_has_no_place_the_engines_own_steps_are_shown(name, monkeypatch, capsys):
    monkeypatch.setenv("LAB_STATIC", "1")
    exercise = load(name)
    report = check(name, load_answer(exercise.starter, exercise.meta.entry))
    assert "See the engine's own steps on such a case" in str(report)
    report.open()
    out = capsys.readouterr().out
    assert "has no place of its own in the engine" in out
    assert "a step failed" not in out
    assert "Step 0" in out


@pytest.mark.parametrize("name", STAGED)
def test_every_visible_case_makes_a_workload_that_the_engine_takes(name):
    exercise = load(name)
    scene = importlib.import_module(f"lab.exercises.{exercise.folder.name}.scene")
    for case in (None, *exercise.visible["cases"], *(example.case for example in exercise.checks.examples)):
        found = scene.workload(case)
        assert 1 <= len(found.prompts) <= found.config.scheduler.max_batch_size * MOST_REQUESTS
        assert all(len(prompt[1]) < found.config.max_seq_len for prompt in found.prompts)


def test_without_the_engines_libraries_the_message_says_what_to_install(monkeypatch):
    report = check("ex16", _right, rule="b")
    monkeypatch.setattr(plugging, "_LLM", "engine.no_such_module")
    with pytest.raises(ExerciseError, match=r"is not installed; `pip install ./stepscope` brings it"):
        report.open()


def test_what_cannot_be_plugged_in_is_said():
    with pytest.raises(ExerciseError, match="has no function to plug in"):
        open_case(load("ex16"), None, None, rule="a")
    with pytest.raises(ExerciseError, match="ex01 cannot be plugged into the engine"):
        plug("ex01", _right)
    with pytest.raises(ExerciseError, match="ex17 cannot be plugged into the engine"):
        check("ex17", lambda **_: None).open()

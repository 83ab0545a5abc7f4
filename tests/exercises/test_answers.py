"""Every wrong solution fails and is named, every right one passes, every starter fails every check."""

import pytest

from lab.exercises.callers import LocalCaller
from lab.exercises.catalogue import exercise_names, load
from lab.exercises.child import load_answer
from lab.exercises.judge import Effort, judge
from lab.exercises.naming import hashed, misconception
from tests.exercises.answers import answers
from tests.exercises.build import marks

QUICK = Effort(num_cases=8, num_shrinks=0)
LONG = Effort(num_cases=120, num_shrinks=0, seed=1)
TABLE = [(name, rule.id) for name in exercise_names() for rule in load(name).meta.rules]


def _results(exercise, answer, rule, effort=QUICK):
    caller = LocalCaller(exercise, load_answer(answer.source, answer.name, rule))
    return judge(exercise, caller, rule=rule, effort=effort, hidden=True)


@pytest.mark.parametrize(("name", "rule"), TABLE)
def test_every_right_answer_passes_every_check_and_is_called_no_misconception(name, rule):
    exercise = load(name)
    right = answers(exercise, "right")
    assert len(right) >= 3
    for answer in [*answers(exercise, "solution"), *right]:
        failed = [(r.name, r.counterexample) for r in _results(exercise, answer, rule) if not r.passed]
        assert not failed, f"{answer.name}: {failed[0]}"
        caller = LocalCaller(exercise, load_answer(answer.source, answer.name, rule))
        assert misconception(exercise, caller, rule=rule) is None


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rule"), TABLE)
def test_every_right_answer_passes_many_cases_with_another_seed(name, rule):
    exercise = load(name)
    for answer in [*answers(exercise, "solution"), *answers(exercise, "right")]:
        failed = [(r.name, r.counterexample) for r in _results(exercise, answer, rule, LONG) if not r.passed]
        assert not failed, f"{answer.name}: {failed[0]}"


@pytest.mark.parametrize(("name", "rule"), TABLE)
def test_every_wrong_answer_fails_and_is_named(name, rule):
    exercise = load(name)
    wrong = answers(exercise, "wrong")
    assert len(wrong) >= 5
    for answer in wrong:
        efforts = (QUICK, Effort(num_cases=60, num_shrinks=0))  # the second only for what fails in few cases
        assert any(not r.passed for effort in efforts for r in _results(exercise, answer, rule, effort)), answer.name
        caller = LocalCaller(exercise, load_answer(answer.source, answer.name, rule))
        found = misconception(exercise, caller, rule=rule)
        assert found is not None, f"{answer.name} is not named"
        assert found.id == answer.name
        assert found.text == answer.text


@pytest.mark.parametrize(("name", "rule"), TABLE)
def test_every_starter_fails_every_check(name, rule):
    exercise = load(name)
    caller = LocalCaller(exercise, load_answer(exercise.starter, exercise.meta.entry))
    results = judge(exercise, caller, rule=rule, effort=QUICK, hidden=True)
    assert [r.name for r in results if r.passed] == []


@pytest.mark.parametrize(("name", "rule"), TABLE)
def test_the_stored_marks_are_those_of_the_wrong_answers_and_of_no_right_one(name, rule):
    exercise = load(name)
    [solution] = answers(exercise, "solution")
    cases = exercise.visible["cases"]
    right = marks(exercise, solution, rule, cases)
    stored = {one["id"]: one["marks"] for one in exercise.visible["misconceptions"][rule]}
    fresh = {
        answer.name: {
            str(i): hashed(exercise.visible["salt"], i, mark)
            for i, mark in enumerate(marks(exercise, answer, rule, cases))
            if mark != right[i]
        }
        for answer in answers(exercise, "wrong")
    }
    assert stored == fresh, f"python -m tests.exercises.build {name}"


@pytest.mark.parametrize("name", list(exercise_names()))
def test_the_metadata_agrees_with_the_properties(name):
    exercise = load(name)
    properties = exercise.checks.properties
    assert exercise.meta.points == 1 + len(properties)
    assert exercise.meta.hidden == tuple(one.name for one in properties if one.is_hidden)
    assert exercise.meta.hidden
    assert len(exercise.meta.rules) >= 2
    assert "{rule}" in (exercise.folder / "spec.md").read_text(encoding="utf-8")
    assert exercise.checks.examples_for(exercise.meta.rules[0].id)

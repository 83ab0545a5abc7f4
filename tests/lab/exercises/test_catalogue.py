"""Exercises by name."""

import pytest

from engine.errors import ExerciseError
from lab.exercises.catalogue import exercise_id, exercise_names, load, next_after, problem_set, problem_sets, rule_of


@pytest.mark.parametrize("name", ["ex16", "16", "EX16 ", "ex16_choose_the_bucket"])
def test_an_exercise_goes_by_several_names(name):
    assert exercise_id(name) == "ex16"
    assert load(name).meta.entry == "bucket_for"


@pytest.mark.parametrize("name", ["ex99", "", "bucket", "ex016x"])
def test_an_unknown_exercise_is_refused_with_those_that_exist(name):
    with pytest.raises(ExerciseError, match=r"there is no exercise .*; there are .*ex16"):
        exercise_id(name)


def test_a_rule_must_exist_and_the_first_is_the_default():
    exercise = load("ex16")
    assert rule_of(exercise, None) == "a"
    assert rule_of(exercise, "b") == "b"
    with pytest.raises(ExerciseError, match="ex16 has the rules a, b, got 'z'"):
        rule_of(exercise, "z")


def test_every_exercise_is_in_exactly_one_problem_set_of_about_ninety_minutes():
    placed = [name for one in problem_sets().values() for name in (*one["exercises"], *one["further"])]
    assert sorted(placed) == list(exercise_names())
    for one in problem_sets().values():
        assert one["question"]
        assert one["rubric"]
        assert sum(load(name).meta.minutes for name in one["exercises"]) <= 100


def test_a_problem_set_that_does_not_exist_is_refused():
    with pytest.raises(ExerciseError, match="there is no problem set 'ps9'; there are ps"):
        problem_set("ps9")


def test_the_last_exercise_has_no_next():
    names = list(exercise_names())
    assert next_after(names[-1]) is None
    assert [next_after(name) for name in names[:-1]] == names[1:]

"""Naming misconceptions."""

from lab.exercises.callers import LocalCaller, Outcome
from lab.exercises.catalogue import load
from lab.exercises.naming import hashed, misconception

EXERCISE = load("ex16")


def _named(function):
    found = misconception(EXERCISE, LocalCaller(EXERCISE, function), rule="a")
    return None if found is None else found.id


def test_a_function_of_ones_own_with_the_same_idea_is_named():
    def mine(sizes, batch):
        if not batch:
            return None
        below = sorted(size for size in sizes if size <= batch)
        return below[-1] if below else min(sizes)

    assert _named(mine) == "rounds_down"


def test_a_right_one_and_one_that_is_wrong_in_its_own_way_are_not_named():
    assert _named(lambda sizes, batch: min((s for s in sizes if s >= batch), default=None) if batch else None) is None
    assert _named(lambda sizes, batch: 41) is None


def test_a_function_that_hangs_is_asked_once():
    asked = []

    def hanging(case):
        asked.append(case)
        return Outcome("slow", text="slow")

    assert misconception(EXERCISE, hanging, rule="a") is None
    assert len(asked) == 1


def test_a_mark_depends_on_salt_case_and_outcome():
    assert len({hashed("s", 0, "1"), hashed("t", 0, "1"), hashed("s", 1, "1"), hashed("s", 0, "2")}) == 4

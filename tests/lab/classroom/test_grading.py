"""One graded answer."""

from lab.classroom.grading import cache_key, exercise_hash, grade_answer, seed_number
from lab.classroom.submissions import Answer
from lab.exercises.catalogue import load
from tests.exercises.classes import SEED, source_of


def test_a_graded_answer_lists_every_check_with_what_was_wrong():
    graded = grade_answer("ex16", Answer(source_of("ex16", "wrong", 0, "b"), ("a note",)), rule="b", seed=SEED)
    assert [check["kind"] for check in graded["checks"]] == ["examples", *["visible"] * 3, *["hidden"] * 2]
    assert graded["points"] == sum(check["passed"] for check in graded["checks"]) < graded["max_points"]
    assert graded["misconception"]["id"] == "rounds_down"
    assert graded["notes"] == ["a note"]
    wrong = next(check for check in graded["checks"] if not check["passed"])
    assert wrong["problem"].startswith("bucket_for(sizes=")


def test_no_answer_is_no_points_for_each_check():
    graded = grade_answer("ex01", Answer("", ("no answer cell was found",)), rule="a", seed=SEED)
    assert graded["points"] == 0
    assert {check["problem"] for check in graded["checks"]} == {"no answer"}
    assert len(graded["checks"]) == load("ex01").meta.points


def test_what_is_kept_depends_on_answer_rule_seed_and_checks():
    answer = Answer("def f(): pass")
    keys = {
        cache_key("ex16", answer, rule="a", seed="s"),
        cache_key("ex16", answer, rule="b", seed="s"),
        cache_key("ex16", answer, rule="a", seed="t"),
        cache_key("ex16", Answer("def f(): pass #"), rule="a", seed="s"),
        cache_key("ex01", answer, rule="a", seed="s"),
    }
    assert len(keys) == 5
    assert exercise_hash("ex01") != exercise_hash("ex02")
    assert seed_number("s", "ex01") != seed_number("s", "ex02")

"""Checking functions, sources and predictions."""

import pytest

from engine.errors import ExerciseError
from lab.exercises.checking import check_function, check_prediction, check_source, forbidden_imports

RIGHT = "def bucket_for(sizes, batch):\n    return min((s for s in sizes if s >= batch), default=None)\n"


def test_a_source_is_checked_in_a_child_under_its_rule():
    assert check_source("ex16", RIGHT, rule="b").passed
    report = check_source("ex16", RIGHT, rule="a")
    assert not report.passed
    assert report.misconception.id == "forgets_the_empty_batch"


def test_check_wants_the_function_itself():
    with pytest.raises(ExerciseError, match=r"check takes the function itself: check\('ex16', bucket_for\)"):
        check_function("ex16", 4)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import engine.inputs.padding as p", ["engine.inputs.padding"]),
        ("from lab.exercises import check", ["lab.exercises"]),
        ("import bisect, enginex", []),
        ("def f(:", []),
    ],
)
def test_imports_of_this_project_are_found(source, names):
    assert forbidden_imports(source) == names


def test_an_answer_that_imports_the_engine_is_refused_in_words():
    source = "from engine.inputs.padding import round_up_to_bucket\ndef bucket_for(sizes, batch):\n    return 1\n"
    report = check_source("ex16", source)
    assert not any(result.passed for result in report.results)
    assert "Refused: an answer may not import engine.inputs.padding: it holds the engine's own function" in str(report)


def test_a_prediction_is_right_or_led_to_by_an_idea_or_of_the_wrong_form():
    assert check_prediction("ex16", 8).endswith("8: that is right.")
    assert check_prediction("ex16", 4).endswith(
        "4: not yet. A function that answers so rounds down to the size below, so that requests are left out."
    )
    assert check_prediction("ex16", 5).endswith("5: not yet.")
    assert check_prediction("ex16", "8") == "Your prediction must be an integer or None, is '8' (str)."
    assert check_prediction("ex16", ...).endswith("which size runs? Put your answer in place of the dots.")
    assert "return integers" in check_prediction("ex16", object())

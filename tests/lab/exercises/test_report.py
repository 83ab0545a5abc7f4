"""What a learner reads."""

import sys

from lab.exercises.checking import check_function
from lab.exercises.report import hint_text


def _down(sizes, batch):
    return max((s for s in sizes if s <= batch), default=min(sizes)) if batch else None


def _right(sizes, batch):
    return min((s for s in sizes if s >= batch), default=None) if batch else None


def test_a_failing_report_shows_example_counterexample_misconception_and_where_to_go():
    text = str(check_function("ex16", _down))
    assert text.startswith("ex16 Choose the bucket\n  FAIL  the worked examples\n        bucket_for(sizes=[1, 2, 4, 8]")
    assert "        returned 2\n        the answer is 4\n" in text
    assert "        bucket_for(sizes=[1, 3], batch=2)\n        returned 1\n" in text
    assert "Your function rounds down to the size below, so that requests are left out." in text
    assert text.endswith("A hint: stepscope check ex16 --hint 1, or hint('ex16') in a cell (three levels).")


def test_a_passing_report_says_that_it_is_done_what_is_hidden_and_what_is_next():
    report = check_function("ex16", _right)
    text = str(report)
    assert report.passed
    assert "All visible checks pass.\n2 hidden properties remain, for grading: above the largest size, one more" in text
    assert "plug('ex16', bucket_for)" in text
    assert "FAIL" not in text


def test_an_error_is_said_with_what_was_printed():
    def noisy(sizes, batch):
        sys.stdout.write(f"sizes are {sizes}")
        raise KeyError(batch)

    text = str(check_function("ex16", noisy))
    assert "raised KeyError: 3" in text
    assert "printed: sizes are [1, 2, 4, 8]" in text


def test_html_is_escaped_and_readable_by_a_screen_reader():
    html = check_function("ex16", lambda sizes, batch: "<b>")._repr_html_()
    assert "&lt;b&gt;" in html
    assert 'role="status"' in html


def test_hints_have_three_levels():
    report = check_function("ex16", _right)
    assert [hint_text(report.exercise, level)[:18] for level in (1, 2, 3)] == [
        f"ex16, hint {n} of 3:"[:18] for n in (1, 2, 3)
    ]

"""CompareView: two linked steppers."""

import pytest

from engine.errors import ConfigError
from lab.trace import Trace
from lab.widgets.compare import compare
from lab.widgets.compare_view import CompareView
from tests.lab.sample_steps import decode_step, eager_step, sample_header, sample_trace


@pytest.fixture
def view():
    steps = [eager_step(0), *(decode_step(at, batch=1 + at % 8, seed=at > 3) for at in range(1, 5))]
    made = CompareView(compare(sample_trace(8), Trace(sample_header(), steps)))
    yield made
    made.close()


def test_it_opens_at_the_first_difference_in_both(view):
    assert view.comparison.first.at == 4
    assert (view.left.step, view.right.step) == (4, 4)
    assert "The first difference is in step 4" in view._head.value
    assert view.left._trace.marks
    assert view.as_text() == view.comparison.sentence()


def test_a_step_in_one_is_the_same_step_in_the_other(view):
    view.right.step = 2
    assert view.left.step == 2
    view.left.step = 3
    assert view.right.step == 3
    assert view.notice.value == ""


def test_a_step_that_the_other_lacks_is_said_and_it_stays(view):
    view.left.step = 7
    assert view.right.step == 4
    assert "Run B has no such step" in view.notice.value
    view.left.step = 1
    assert view.right.step == 1
    assert view.notice.value == ""


def test_stage_language_and_request_go_along(view):
    view.left.stage = 7
    view.right.selected = 1
    assert (view.right.stage, view.left.selected) == (7, 1)
    view.right.lang = "zh"
    assert view.left.lang == "zh"
    assert "第一处不同" in view._head.value
    assert "不同的步骤" in view.chooser.options[0][0]
    view.left.selected = -1
    assert view.right.selected == -1


def test_a_difference_is_chosen_from_the_list(view):
    assert len(view.chooser.options) == 1 + len(view.comparison.differences)
    view.chooser.value = len(view.comparison.differences) - 1
    assert view.left.step == 7
    view.go(0)
    assert (view.left.step, view.right.step) == (4, 4)


def test_a_step_that_is_not_there_is_one_error():
    with pytest.raises(ConfigError, match="step must be from -3 to 2"):
        CompareView(compare(sample_trace(3), sample_trace(3)), step=9)


def test_two_equal_runs_have_no_list():
    made = CompareView(compare(sample_trace(3), sample_trace(3)))
    assert made.chooser not in made.children
    assert (made.left.step, made.right.step) == (0, 0)
    made.close()

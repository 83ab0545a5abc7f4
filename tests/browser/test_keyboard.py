"""The stepper without a mouse, and without motion: what a reader does in a walkthrough, by keys alone."""

import pytest

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams
from lab.session import Session
from tests.browser.pages import focus, press, step_of

pytestmark = pytest.mark.browser

FOCUSED_IN = "(where) => Boolean(document.activeElement.closest(where))"


@pytest.fixture(scope="module")
def trace():
    config = EngineConfig(device="cpu", max_seq_len=128, cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4)))
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    with Session("tiny", prompts=[(0, "Hello there"), (1, "abc")], config=config, params=params) as session:
        return session.run()


def tab_into(page, where, most=80):
    """Press Tab until something inside ``where`` has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED_IN, where):
            return
    message = f"no Tab reaches {where}"
    raise AssertionError(message)


def test_a_prediction_is_made_and_a_request_followed_by_keys_alone(page_over, trace):
    page = page_over(trace, step=2)
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED_IN, ".stepscope")
    press(page, "p")
    press(page, "ArrowRight")
    tab_into(page, '.ss-predict [aria-label="Your prediction"]')
    press(page, "Enter")
    assert len(page.evaluate("() => model.get('answers')")) == 1
    assert page.locator(".ss-answer").is_visible()
    press(page, "ArrowRight")  # the chosen button is gone, the keys are not
    assert step_of(page) == trace.steps[4].step
    press(page, "p")
    tab_into(page, ".ss-requests")
    press(page, "Enter")
    assert page.evaluate("() => model.get('selected')") >= 0
    assert page.locator(".ss-journey").is_visible()
    press(page, "Escape")
    assert page.evaluate("() => model.get('selected')") == -1


def test_escape_leaves_what_was_opened_last_and_the_viewer_after_all(page_over, trace):
    page = page_over(trace, step=2)
    focus(page)
    page.locator(".ss-requests button").first.click()
    for key in ("p", "ArrowRight", "t", "?"):
        press(page, key)
    assert page.locator('[role="dialog"]').is_visible()
    press(page, "Escape")
    assert not page.locator('[role="dialog"]').is_visible()
    assert page.locator(".ss-predict").is_visible()
    press(page, "Escape")
    assert not page.locator(".ss-predict").is_visible()
    assert page.evaluate("() => [model.get('predict_from'), model.get('step')]") == [-1, 3]
    assert page.evaluate("() => model.get('selected')") >= 0
    press(page, "Escape")
    assert page.evaluate("() => model.get('selected')") == -1
    assert page.evaluate(FOCUSED_IN, ".stepscope")
    press(page, "Escape")
    assert not page.evaluate(FOCUSED_IN, ".stepscope")


@pytest.mark.parametrize("key", ["Escape", "p"])
def test_who_leaves_a_prediction_from_within_keeps_the_keys(page_over, trace, key):
    page = page_over(trace, step=2)
    focus(page)
    press(page, "p")
    press(page, "ArrowRight")
    tab_into(page, '.ss-predict [aria-label="Your prediction"]')
    press(page, key)
    assert not page.locator(".ss-predict").is_visible()
    press(page, "ArrowRight")
    assert step_of(page) == trace.steps[4].step


def test_escape_in_a_field_of_a_prediction_leaves_the_field_first(page_over, trace):
    page = page_over(trace, step=2)
    focus(page)
    press(page, "p")
    page.get_by_role("button", name="next cell").click()
    tab_into(page, '.ss-predict input[type="number"]')
    press(page, "Escape")
    assert page.locator(".ss-predict").is_visible()
    assert page.evaluate("() => document.activeElement.className").startswith("stepscope")
    press(page, "Escape")
    assert not page.locator(".ss-predict").is_visible()


def test_a_table_that_covers_the_panel_one_was_in_keeps_the_keys(page_over, trace):
    page = page_over(trace, step=2)
    focus(page)
    tab_into(page, ".ss-panel")
    press(page, "t")
    assert page.evaluate(FOCUSED_IN, ".stepscope")
    press(page, "ArrowRight")
    assert step_of(page) == trace.steps[3].step


def test_what_scrolls_can_be_reached_and_scrolled_by_keys(page_over, trace):
    page = page_over(trace, step=2, stage=5)
    page.set_viewport_size({"width": 1300, "height": 900})
    focus(page)
    tab_into(page, ".ss-panel")
    press(page, "ArrowDown", 4)
    page.wait_for_function("() => document.querySelector('.ss-panel').scrollTop > 0")
    assert step_of(page) == trace.steps[2].step


def test_nothing_moves_by_itself_for_who_asked_for_less_motion(page_over, trace):
    page = page_over(trace)
    page.emulate_media(reduced_motion="reduce")
    focus(page)
    for key in ("ArrowRight", "PageDown", "t", "t", "?", "Escape", "End"):
        press(page, key)
        assert page.evaluate("() => document.getAnimations().length") == 0, key
    moving = """() => [...document.querySelectorAll(".stepscope, .stepscope *")].filter((node) => {
      const { animationName, scrollBehavior, transitionDuration } = getComputedStyle(node);
      return animationName !== "none" || scrollBehavior === "smooth" || /[1-9]/.test(transitionDuration);
    }).length"""
    assert page.evaluate(moving) == 0

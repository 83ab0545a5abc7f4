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

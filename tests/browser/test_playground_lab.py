"""The playground and two runs side by side in the real JupyterLab: every control is a native one with a name."""

import os

import pytest

from tests.browser.pages import notebook_of

pytestmark = pytest.mark.browser

CELLS = (
    "import lab\nplay = lab.playground(prompts='0: The capital of France is', max_tokens=6)\nplay",
    "first = play.trace",
)
KERNEL_IDLE = "() => window.jupyterapp.shell.currentWidget.sessionContext?.session?.kernel?.status === 'idle'"
NAMELESS = """() => {
  const controls = ["input", "select", "textarea", "button"].map((tag) => ".jp-OutputArea-output " + tag).join();
  const named = (node) => node.getAttribute("aria-label") || node.title || node.textContent.trim();
  const labelled = (node) => node.labels && [...node.labels].some((one) => one.textContent.trim());
  return [...document.querySelectorAll(controls)]
    .filter((node) => node.checkVisibility() && !node.closest(".stepscope") && !named(node) && !labelled(node))
    .map((node) => node.outerHTML.slice(0, 120));
}"""


@pytest.fixture
def page(lab, open_page):
    (lab.folder / "play.ipynb").write_text(notebook_of(CELLS), encoding="utf-8")
    watched = open_page()
    page = watched.page
    page.goto(f"{lab.url}/lab/tree/play.ipynb?reset")
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.content?.widgets", timeout=120_000)
    page.wait_for_function(KERNEL_IDLE, timeout=120_000)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_selector("text=Change something and press Run.", timeout=120_000)
    yield page
    assert watched.errors == []
    assert watched.external == []
    page.close()


def test_a_run_a_refusal_and_two_runs_side_by_side(page):
    assert page.evaluate(NAMELESS) == []
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector('.stepscope[data-ready="1"]', timeout=60_000)
    page.wait_for_selector("text=Run 1: 6 steps")
    buckets = page.get_by_label("decode buckets")
    buckets.fill("2, 1")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector('[role="alert"]:has-text("must be ascending")')
    buckets.fill("2")
    page.get_by_label("padding").uncheck()
    page.get_by_label("show beside the last run").check()
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector("text=Against the last run (A): The first difference is in step 1, in the path")
    page.wait_for_function(
        "() => document.querySelectorAll('.stepscope[data-ready=\"1\"]').length === 2", timeout=60_000
    )
    steppers = page.locator('.stepscope[data-ready="1"]')
    steppers.nth(0).focus()
    page.keyboard.press("End")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.stepscope')].every((one) => one.dataset.step === '5')"
    )
    assert page.evaluate(NAMELESS) == []
    if "STEPSCOPE_PICTURES" in os.environ:
        page.set_viewport_size({"width": 1400, "height": 2600})
        page.get_by_role("heading", name="Playground").scroll_into_view_if_needed()
        page.screenshot(path=os.environ["STEPSCOPE_PICTURES"] + "/playground.png")


def test_a_request_joins_and_another_is_aborted_while_stepping(page):
    page.get_by_label("step by hand (live)").check()
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_selector('.stepscope[data-ready="1"]', timeout=60_000)
    page.locator(".stepscope").first.focus()
    page.keyboard.press("r")
    page.wait_for_function("() => document.querySelector('.stepscope').dataset.step === '0'")
    page.get_by_role("button", name="Add request").click()
    page.wait_for_selector("text=r1 joins before the next step.")
    page.locator(".stepscope").first.focus()
    page.keyboard.press("r")
    page.wait_for_selector('.stepscope .ss-requests button:has-text("r1")')
    page.get_by_role("button", name="Abort it").click()
    page.wait_for_selector("text=r0 ends with the next step.")

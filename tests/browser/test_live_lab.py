"""A live session in the real JupyterLab survives what people do: show it twice, move or rerun its cell, restart."""

import pytest

from tests.browser.pages import notebook_of

pytestmark = pytest.mark.browser

READY = '.stepscope[data-ready="1"]'
CELLS = (
    "import lab\nsession = lab.Session('tiny', prompts=['The capital of France is', 'Once upon a time'])",
    "view = session.show(notes='Watch the batch.', mask='key')\nview",
    "view",
    "session.show(lang='zh')",
)
KERNEL_IDLE = "() => window.jupyterapp.shell.currentWidget.sessionContext?.session?.kernel?.status === 'idle'"
RUN_CELL = """async (at) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = at;
  await window.jupyterapp.commands.execute("notebook:run-cell");
}"""
MOVE_DOWN = """async (at) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = at;
  await window.jupyterapp.commands.execute("notebook:move-cell-down");
}"""
STEPS = "() => [...document.querySelectorAll('.stepscope[data-ready=\"1\"]')].map((one) => one.dataset.step)"


@pytest.fixture(scope="module")
def opened(lab, open_page):
    """The notebook with one session, one viewer of it in two cells, and another viewer in a third."""
    (lab.folder / "live.ipynb").write_text(notebook_of(CELLS), encoding="utf-8")
    watched = open_page()
    page = watched.page
    page.goto(f"{lab.url}/lab/tree/live.ipynb?reset")
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.content?.widgets", timeout=120_000)
    page.wait_for_function(KERNEL_IDLE, timeout=120_000)
    for at in range(4):
        page.evaluate(RUN_CELL, at)
    page.wait_for_function(f"() => document.querySelectorAll('{READY}').length === 3", timeout=180_000)
    yield watched
    page.close()


def take_a_step(page, view, expected):
    """Ask for the next real step in one view and wait until it shows."""
    root = page.locator(READY).nth(view)
    root.scroll_into_view_if_needed()
    root.focus()
    page.keyboard.press("r")
    page.wait_for_function(
        "([view, step]) => document.querySelectorAll('.stepscope[data-ready=\"1\"]')[view].dataset.step === step",
        arg=[view, str(expected)],
        timeout=60_000,
    )


def wait_for_steps(page, expected):
    page.wait_for_function(f"(expected) => ({STEPS})().join() === expected", arg=",".join(expected), timeout=60_000)


def test_two_views_show_one_step_and_another_viewer_of_the_session_takes_turns(opened):
    page = opened.page
    take_a_step(page, 0, 0)
    take_a_step(page, 1, 1)
    wait_for_steps(page, ["1", "1", ""])
    take_a_step(page, 2, 2)  # it brings what the others ran, and runs the next: no step is run twice
    assert page.locator(READY).nth(2).locator(".ss-chart g[data-p]:visible").count() == 3
    take_a_step(page, 0, 3)
    wait_for_steps(page, ["3", "3", "2"])
    assert "Watch the batch." in page.locator(READY).first.get_by_role("note").inner_text()


def test_a_moved_cell_keeps_its_place_and_goes_on(opened):
    page = opened.page
    page.locator(READY).first.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("m")
    wait_for_steps(page, ["2", "2", "2"])
    page.evaluate(MOVE_DOWN, 2)
    wait_for_steps(page, ["2", "2", "2"])
    page.wait_for_function(f"() => document.querySelectorAll('{READY}')[1].lang === 'zh-CN'", timeout=60_000)
    page.evaluate(MOVE_DOWN, 1)
    page.wait_for_function(f"() => document.querySelectorAll('{READY}')[0].lang === 'zh-CN'", timeout=60_000)
    wait_for_steps(page, ["2", "2", "2"])
    for view in (1, 2):
        shown = page.locator(READY).nth(view).locator(".ss-mask button[aria-pressed=true]")
        assert shown.all_inner_texts() == ["key"]
    take_a_step(page, 1, 4)
    wait_for_steps(page, ["2", "4", "4"])


def test_a_cell_that_runs_again_shows_all_steps_and_goes_on(opened):
    page = opened.page
    for at in (2, 3):  # the two cells of the first viewer
        page.evaluate(RUN_CELL, at)
    wait_for_steps(page, ["2", "0", "0"])
    page.locator(READY).nth(1).focus()
    page.keyboard.press("End")
    wait_for_steps(page, ["2", "4", "4"])
    take_a_step(page, 2, 5)
    take_a_step(page, 0, 6)


def test_a_page_that_is_reloaded_shows_the_same_session_at_the_same_step(opened):
    page = opened.page
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.reload()
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.content?.widgets", timeout=120_000)
    page.wait_for_function(KERNEL_IDLE, timeout=120_000)
    wait_for_steps(page, ["6", "5", "5"])
    take_a_step(page, 1, 7)


def test_after_a_restart_of_the_kernel_the_steps_stay_and_a_new_one_is_refused_in_words(opened):
    page = opened.page
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.wait_for_function(KERNEL_IDLE, timeout=120_000)
    root = page.locator(READY).first
    root.scroll_into_view_if_needed()
    root.focus()
    page.keyboard.press("Home")
    page.wait_for_function("() => document.querySelector('.stepscope').dataset.step === '0'")
    page.keyboard.press("r")
    alert = root.get_by_role("alert")
    alert.wait_for(timeout=90_000)
    assert "内核已重启" in alert.inner_text()
    english = page.locator(READY).nth(1)
    english.focus()
    page.keyboard.press("r")
    english.get_by_role("alert").wait_for(timeout=90_000)
    assert "The kernel was restarted" in english.get_by_role("alert").inner_text()
    assert "this cell has to run again" in english.get_by_role("alert").inner_text()
    for at in range(2):  # make the session anew, and show it
        page.evaluate(RUN_CELL, at)
    page.wait_for_function(f"() => ({STEPS})()[0] === undefined", timeout=120_000)
    assert "还没有任何步骤" in page.locator(READY).first.inner_text()
    take_a_step(page, 0, 0)


def test_nothing_was_asked_of_the_network(opened):
    assert opened.external == []

"""The live stepper in the front end of this environment: JupyterLab, or what ``STEPSCOPE_FRONT_END`` names.

``.ci/front_ends`` runs this file again in environments with the oldest JupyterLab and with Notebook 7.
"""

import pytest
from playwright.sync_api import TimeoutError as Missing

from tests.browser.conftest import FRONT_END
from tests.browser.pages import notebook_of, press, step_of

pytestmark = pytest.mark.browser

ADDRESSES = {"jupyterlab": "lab/tree/{}?reset", "notebook": "notebooks/{}"}
STEPPER = '.stepscope[data-ready="1"]'
CELLS = (
    "from engine import EngineConfig\nfrom lab import Session, show",
    "session = Session('tiny', prompts=['To be', 'or not'], config=EngineConfig(device='cpu'))",
    "steps = [session.step() for _ in range(4)]",
    "show(session, stage='PACKED')",
)
OPEN = "() => window.jupyterapp?.shell?.currentWidget?.content?.widgets"
IDLE = "() => window.jupyterapp.shell.currentWidget.sessionContext?.session?.kernel?.status === 'idle'"
RUN_ALL = "() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }"
NUM_CELLS = "() => window.jupyterapp.shell.currentWidget.content.widgets.length"


def _run_all(page):
    """Run all cells, again if need be: asked too early, Notebook 7 stops behind the first cell."""
    for _ in range(5):
        page.evaluate(RUN_ALL)
        try:
            return page.wait_for_selector(STEPPER, timeout=30_000)
        except Missing:
            continue
    return page.wait_for_selector(STEPPER, timeout=60_000)


def test_the_live_stepper_steps_and_leaves_the_cells_alone(lab, open_page):
    (lab.folder / "front.ipynb").write_text(notebook_of(CELLS), encoding="utf-8")
    watched = open_page()
    page = watched.page
    page.goto(f"{lab.url}/{ADDRESSES[FRONT_END].format('front.ipynb')}")
    page.wait_for_function(OPEN, timeout=120_000)
    page.wait_for_function(IDLE, timeout=120_000)
    _run_all(page)
    page.locator(STEPPER).last.focus()
    cells = page.evaluate(NUM_CELLS)
    press(page, "Home")
    assert step_of(page) == 0
    press(page, "ArrowRight", 3)
    assert step_of(page) == 3
    press(page, "r")
    page.wait_for_function("() => document.querySelector('.stepscope').dataset.step === '4'", timeout=20_000)
    for key in ("b", "d", "d"):
        press(page, key)
    page.wait_for_timeout(500)
    assert page.evaluate(NUM_CELLS) == cells == len(CELLS)
    assert not page.locator('.stepscope [role="alert"]').is_visible()
    assert watched.external == []
    page.close()

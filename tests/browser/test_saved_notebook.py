"""A committed notebook as HTML, opened with the network blocked: its picture is there, and its page steps."""

from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter

from tests.browser.pages import STEP

pytestmark = pytest.mark.browser

NOTEBOOK = Path(__file__).resolve().parents[2] / "walkthroughs/07_seven_becomes_eight.ipynb"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    text, _ = HTMLExporter().from_notebook_node(nbformat.read(NOTEBOOK, as_version=4))
    file = tmp_path_factory.mktemp("exported") / "seven.html"
    file.write_text(text, encoding="utf-8")
    return file


def test_an_exported_notebook_steps_with_the_network_blocked(chromium, exported):
    context = chromium.new_context(offline=True, viewport={"width": 1200, "height": 1000})
    page = context.new_page()
    page.goto(exported.as_uri(), wait_until="commit")
    picture = page.locator('img[src^="data:image/png"]')
    picture.wait_for(timeout=60_000)
    assert picture.evaluate("(image) => image.naturalWidth") > 800
    held = page.locator("iframe[srcdoc]")
    held.scroll_into_view_if_needed()
    frame = held.element_handle().content_frame()
    frame.wait_for_selector('.stepscope[data-ready="1"]', timeout=60_000)
    before = frame.evaluate(STEP)
    frame.locator(".stepscope").focus()
    page.keyboard.press("ArrowRight")
    frame.wait_for_function(f"() => ({STEP})() !== '{before}'", timeout=10_000)
    assert int(frame.evaluate(STEP)) == int(before) + 1
    assert frame.locator(".ss-main").inner_text()
    context.close()


def test_where_scripts_may_not_run_the_picture_and_the_table_are_left(chromium, exported):
    context = chromium.new_context(offline=True, java_script_enabled=False)
    page = context.new_page()
    page.goto(exported.as_uri(), wait_until="commit")
    page.locator('img[src^="data:image/png"]').wait_for(timeout=60_000)
    assert "All steps" in page.locator("table caption").all_inner_texts()
    context.close()

"""A page that `stepscope trace export` made, opened from disk with the network blocked and its own policy in force."""

import dataclasses
from pathlib import Path

import pytest

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams
from lab.export.page import PageSettings, export_page
from lab.imports import read_log
from lab.imports.outline_steps import Limits
from lab.imports.read_log import ImportSettings, import_log
from lab.session import Session
from lab.snapshot import PathView
from lab.trace import Trace
from lab.widgets.strings import translate
from tests.browser.pages import focus, press, step_of
from tests.lab.sample_steps import decode_step

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def trace():
    config = EngineConfig(device="cpu", max_seq_len=128, cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4)))
    prompts = [(0, "Hello there"), (1, "abc"), (3, "x")]
    with Session("tiny", prompts=prompts, config=config, params=SamplingParams(max_tokens=6)) as session:
        return session.run()


@pytest.fixture
def opened(chromium, tmp_path):
    """Open a page in a context without a network, and see to it that it asked for nothing."""
    contexts, asked, errors = [], [], []

    def open_one(text):
        context = chromium.new_context(offline=True, viewport={"width": 1400, "height": 1100})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: asked.append(request.url))
        file = tmp_path / "run.html"
        file.write_text(text, encoding="utf-8")
        page.goto(file.as_uri())
        page.wait_for_selector('[data-ready="1"]', timeout=20_000)
        return page

    open_one.errors = errors
    yield open_one
    assert errors == []
    assert [url for url in asked if not url.startswith("file:")] == []
    for context in contexts:
        context.close()


def test_an_exported_page_steps_with_the_network_blocked(opened, trace):
    page = opened(export_page(trace, PageSettings(step=2)))
    focus(page)
    assert step_of(page) == trace.steps[2].step
    press(page, "Home")
    seen = [step_of(page)]
    for _ in range(len(trace) - 1):
        press(page, "ArrowRight")
        seen.append(step_of(page))
    assert seen == [step.step for step in trace.steps]
    for stage in range(1, 10):
        press(page, "PageDown")
        assert page.locator(".ss-panel").get_attribute("data-stage") == str(stage)
    assert page.locator("h1").inner_text() == "tiny on cpu"


def test_the_policy_of_an_exported_page_stops_every_other_script_and_request(opened, trace):
    page = opened(export_page(trace))
    violations = page.evaluate(
        """async () => {
          const found = [];
          document.addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "window.intruder = true";
          document.body.append(script);
          await new Promise((done) => setTimeout(done, 50));
          return { found, intruder: window.intruder === true };
        }"""
    )
    assert violations == {"found": ["script-src-elem"], "intruder": False}
    assert ["Content Security Policy" in opened.errors.pop()] == [True]


def test_an_exported_window_says_what_it_leaves_out_in_the_reader_s_language(opened, trace):
    page = opened(export_page(trace, PageSettings(step=-1, most_steps=3, lang="zh", dark=True)))
    assert "已截取" in page.locator(".about").inner_text()
    assert step_of(page) == trace.steps[-1].step
    focus(page)
    press(page, "Home")
    assert step_of(page) == trace.steps[-3].step


SAMPLES = {"csv": "steps.csv", "trtllm-iter-log": "trtllm_iter.log", "vllm-cudagraph-log": "vllm_cudagraph.log"}


@pytest.mark.parametrize("form", SAMPLES)
def test_an_imported_run_steps_and_says_what_it_lacks(opened, form):
    path = Path(read_log.__file__).parent / "samples" / SAMPLES[form]
    trace = import_log(path, form, ImportSettings(limits=Limits(buckets=(1, 2, 4, 8))))
    page = opened(export_page(trace))
    focus(page)
    assert "Imported" in page.locator(".about").inner_text()
    for step in trace.steps:
        assert step_of(page) == step.step
        told = page.locator(".ss-detail").inner_text()
        assert ("is not in the file" in told) == bool(step.schedule.spans)
        press(page, "ArrowRight")
    press(page, "Home")
    for stage in range(13):
        assert page.locator(".ss-panel").get_attribute("data-stage") == str(stage)
        shown = page.locator(".ss-panel").inner_text()
        assert ("Not in the imported file" in shown) == (stage not in {0, 3})
        text = page.locator(".stepscope").inner_text()
        assert not [word for word in ("undefined", "NaN", "null", "{") if word in text]
        press(page, "PageDown")
    press(page, "f")
    first = next(step for step in trace.steps[1:] if step.graph.path == "eager")
    assert step_of(page) == first.step


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("form", SAMPLES)
def test_an_imported_run_says_that_nobody_can_be_followed(opened, form, lang):
    path = Path(read_log.__file__).parent / "samples" / SAMPLES[form]
    trace = import_log(path, form, ImportSettings(limits=Limits(buckets=(1, 2, 4, 8))))
    page = opened(export_page(trace, PageSettings(lang=lang)))
    side = page.locator(".ss-side").inner_text()
    assert translate("outline.nobody", {}, lang) in side
    assert translate("side.follow_none", {}, lang) not in side
    assert translate("side.hint", {}, lang) not in side
    assert not page.locator(".ss-outputs").is_visible()


def test_a_run_without_requests_says_that_none_came_yet(opened, trace):
    idle = decode_step(0, batch=0)
    graph = dataclasses.replace(idle.graph, path="eager", key=None)
    path = PathView(None, None, None, 0, 0, ())
    empty = Trace(dataclasses.replace(trace.header, requests=()), [dataclasses.replace(idle, path=path, graph=graph)])
    page = opened(export_page(empty))
    assert "No request yet." in page.locator(".ss-side").inner_text()
    assert "Follow a request" not in page.locator(".ss-side").inner_text()
    assert "imported" not in page.locator(".ss-side").inner_text()


def test_a_page_follows_the_reader_s_colours_while_it_is_open(opened, trace):
    page = opened(export_page(trace))
    for scheme, light in (("dark", "false"), ("light", "true")):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(f'body[data-jp-theme-light="{light}"]', timeout=5_000)
    assert page.evaluate("getComputedStyle(document.getElementById('views')).marginLeft") == "16px"


def test_a_page_that_was_made_dark_stays_dark(opened, trace):
    page = opened(export_page(trace, PageSettings(dark=True)))
    page.emulate_media(color_scheme="light")
    assert page.evaluate("document.body.getAttribute('data-jp-theme-light')") == "false"

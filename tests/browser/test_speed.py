"""How fast the stepper answers: script time of a key press on a plain page, and a live step in the real JupyterLab."""

import statistics

import pytest

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from lab.session import Session
from tests.browser.pages import focus, notebook_of, step_of

pytestmark = pytest.mark.browser

KEY_PRESSES = 60
LIVE_STEPS = 20
MOST_SCRIPT_MS = 16
MOST_LIVE_MS = 250  # and tiny's own step of a few milliseconds is in it
ROUNDS = 3  # the best of three: the machine may be busy with something else
CELLS = (
    """from engine import EngineConfig, SamplingParams
from lab import Session, show""",
    """params = SamplingParams(max_tokens=100, ignore_eos=True)
session = Session("tiny", prompts=["To be", "or not"], params=params, config=EngineConfig(device="cpu"))
session.step()""",
    "show(session)",
)
OPEN = "() => window.jupyterapp?.shell?.currentWidget?.content?.widgets"
IDLE = "() => window.jupyterapp.shell.currentWidget.sessionContext?.session?.kernel?.status === 'idle'"
# From the key's event to the frame after the stepper shows another step: what a person waits for.
PRESSES = """async ([key, times]) => {
  const root = document.querySelector('.stepscope[data-ready="1"]');
  const took = [];
  for (let at = 0; at < times; at += 1) {
    const before = root.dataset.step;
    const began = performance.now();
    root.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    while (root.dataset.step === before && performance.now() - began < 10_000)
      await new Promise((done) => requestAnimationFrame(done));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    took.push(performance.now() - began);
  }
  return took;
}"""
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def trace():
    config = EngineConfig(
        device="cpu",
        max_seq_len=256,
        scheduler=SchedulerConfig(max_batch_size=8, max_num_tokens=64),
        kv_cache=KVCacheConfig(num_blocks=64),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4, 8)),
    )
    prompts = [
        (4 * at, f"request {at} of a run in which others join and leave", SamplingParams(max_tokens=40 + 7 * at))
        for at in range(7)
    ]
    with Session("tiny", prompts=prompts, config=config) as session:
        return session.run()


def _script_seconds(cdp):
    return {one["name"]: one["value"] for one in cdp.send("Performance.getMetrics")["metrics"]}["ScriptDuration"]


def _script_ms_of_presses(page, cdp):
    took = []
    for _ in range(KEY_PRESSES):
        before = _script_seconds(cdp)
        page.keyboard.press("ArrowRight")
        page.evaluate(PAINTED)
        took.append(1e3 * (_script_seconds(cdp) - before))
    return took


@pytest.mark.parametrize("stage", [0, 3, 4, 5, 6, 7, 10, 11])
def test_a_key_press_takes_under_16_ms_of_script_in_the_median(page_over, trace, stage):
    assert len(trace) > KEY_PRESSES
    page = page_over(trace, stage=stage)
    focus(page)
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable")
    medians = []
    for _ in range(ROUNDS):
        page.keyboard.press("Home")
        page.evaluate(PAINTED)
        medians.append(statistics.median(_script_ms_of_presses(page, cdp)))
        assert step_of(page) == KEY_PRESSES
        if medians[-1] < MOST_SCRIPT_MS:
            break
    print(f"stage {stage}: {min(medians):.1f} ms of script in the median")  # noqa: T201 (pytest -s shows it)
    assert min(medians) < MOST_SCRIPT_MS


def test_a_live_step_is_on_the_screen_within_a_quarter_of_a_second(lab, open_page):
    (lab.folder / "live.ipynb").write_text(notebook_of(CELLS), encoding="utf-8")
    watched = open_page()
    page = watched.page
    page.goto(f"{lab.url}/lab/tree/live.ipynb?reset")
    page.wait_for_function(OPEN, timeout=120_000)
    page.wait_for_function(IDLE, timeout=120_000)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_selector('.stepscope[data-ready="1"]', timeout=120_000)
    medians = []
    for _ in range(ROUNDS):
        before = step_of(page)
        medians.append(statistics.median(page.evaluate(PRESSES, ["r", LIVE_STEPS])))
        assert step_of(page) == before + LIVE_STEPS
        if medians[-1] < MOST_LIVE_MS:
            break
    print(f"a live step: {min(medians):.0f} ms in the median, the engine's own included")  # noqa: T201
    assert min(medians) < MOST_LIVE_MS
    assert watched.errors == []
    page.close()

"""axe-core over every view: both themes, forced colours, 200 % zoom, both languages; and in the real JupyterLab."""

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.llm import LLM
from lab.export.page import export_page
from lab.session import attach
from lab.widgets.masks import expand
from tests.browser.pages import notebook_of

pytestmark = pytest.mark.browser

PARAMS = SamplingParams(max_tokens=10, ignore_eos=True)
SHARED = "You are a helpful assistant. "
STAGES = range(13)
LOOKS = {
    "light": {},
    "dark": {"dark": True},
    "forced colours": {"forced": "active"},
    "200 %": {"size": {"width": 640, "height": 500}},  # a window of 1280 by 1000, everything twice as large
}
# axe cannot judge text on a gradient, of one letter, or scrolled out of sight, and leaves out small targets by default.
# So patterns and shadows go, boxes that scroll are as high as what they hold, and every letter counts as text. Panels
# that were painted one after the other are judged together, because each run of axe reads the whole page.
PREPARE = """() => {
  const style = document.createElement("style");
  style.textContent = `.stepscope, .stepscope *, .stepscope *::before { background-image: none !important; }
    .stepscope :is(.ss-panel, .ss-side, .ss-scroll, .ss-sheet) { height: auto !important; max-height: none !important; }
    .judged-together .ss-grid .ss-body > div, .judged-together .ss-grid { display: block !important; }`;
  document.head.append(style);
  const contrastRatio = { normal: { expected: 4.5 }, large: { expected: 3 } };
  const text = { ignoreUnicode: false, ignoreLength: true, ignorePseudo: false, pseudoSizeThreshold: 0.25 };
  const size = { boldValue: 700, boldTextPt: 14, largeTextPt: 18 };
  axe.configure({ checks: [{ id: "color-contrast", options: { ...text, ...size, contrastRatio } }] });
}"""
RUN = """async (where) => {
  const options = { resultTypes: ["violations", "incomplete"], rules: { "target-size": { enabled: true } } };
  const found = await axe.run(where || document, options);
  const told = ({ id, nodes }) => nodes.map((node) => {
    const checks = [...node.any, ...node.all, ...node.none].map((check) => check.message);
    return [id, `${node.target.join(" ")}: ${node.html.slice(0, 90)}`, checks.join("; ")];
  });
  return [found.violations.flatMap(told), found.incomplete.flatMap(told)];
}"""
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Judge:
    """Runs axe and keeps what it finds as lines for a person: view, rule, element, hint."""

    def __init__(self, page):
        self.page, self.found = page, []
        page.evaluate(AXE_SCRIPT)
        page.evaluate(PREPARE)

    def look(self, view, where=None, *, is_covered=False):
        """Judge a part of the page. is_covered: some of it is out of sight, so that axe is unsure of its contrast."""
        self.page.evaluate(PAINTED)
        violations, unsure = self.page.evaluate(RUN, where)
        silent = ("<text", 'aria-hidden="true"')  # marks in a picture that has a name, and swatches beside words
        kept = [one for one in unsure if not any(mark in one[1] for mark in silent) and one[0] == "color-contrast"]
        kept = [] if is_covered else kept
        self.found += [f"{view} | {' | '.join(one)}" for one in [*violations, *kept]]

    def verdict(self):
        assert not self.found, "axe found\n" + "\n".join(self.found)


@pytest.fixture(scope="module")
def trace():
    """Overlapped steps over a pool that is too small: requests share, wait and verify, blocks go to the host."""
    config = EngineConfig(
        device="cpu",
        max_seq_len=128,
        overlap=True,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=48, draft_len=3, chunking="fcfs"),
        kv_cache=KVCacheConfig(num_blocks=30, tokens_per_block=8, host_blocks=8),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4), draft_lens=(3,)),
    )
    with LLM("tiny", config) as llm:
        guess = list(llm.generate(SHARED + "What is the sea?", PARAMS)[0].token_ids)
        with attach(llm, mode="full") as recorder:
            llm.submit(SHARED + "What is the sea?", PARAMS, draft_tokens=guess)
            llm.submit(SHARED + "What is rain?", PARAMS)
            llm.step()
            for prompt in ("Where is Paris on a map of Europe?", "A new prompt, long enough for many blocks", "Three"):
                llm.submit(SHARED + prompt, PARAMS)
            while llm.has_unfinished:
                llm.step()
            return recorder.trace


@pytest.fixture(scope="module")
def opened(chromium, trace, tmp_path_factory):
    """An exported page; its policy would keep axe out, so it is not in force here."""
    context = chromium.new_context(offline=True, bypass_csp=True)
    page = context.new_page()
    file = tmp_path_factory.mktemp("axe") / "run.html"
    file.write_text(export_page(trace), encoding="utf-8")
    page.goto(file.as_uri())
    page.wait_for_selector('[data-ready="1"]', timeout=20_000)
    yield page
    context.close()


def dress(page, *, dark=False, forced="none", size=None):
    page.emulate_media(color_scheme="dark" if dark else "light", forced_colors=forced)
    page.set_viewport_size(size or {"width": 1400, "height": 1100})


def put(page, **traits):
    page.evaluate("(traits) => { for (const name in traits) model.set(name, traits[name]); }", traits)


def telling_steps(trace):
    """For each stage the step that shows most of it."""
    steps = list(enumerate(trace.steps))
    waits = max(steps, key=lambda one: len({d.reason for d in one[1].schedule.deferrals}))[0]
    moves = max(steps, key=lambda one: len(one[1].reservation.copies))[0]
    eager = max(steps, key=lambda one: (one[1].graph.path == "eager", len(one[1].schedule.spans)))[0]
    late = max(steps, key=lambda one: (len(one[1].graph.flight.late), len(one[1].outcome.accepted)))[0]
    return {**dict.fromkeys(STAGES, late), 0: waits, 1: moves, 3: eager, 10: moves, 11: moves}


def paint_every_panel(page, steps):
    """Visit each stage at its step, and the table, and leave all of them open under each other."""
    for stage in STAGES:
        put(page, stage=stage, step=steps[stage])
        page.evaluate(PAINTED)
    page.locator(".ss-warm").click()
    page.locator(".stepscope").focus()
    page.keyboard.press("t")
    page.evaluate(PAINTED)
    page.evaluate("() => document.body.classList.add('judged-together')")


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_in_any_view(opened, trace, look, lang):
    page, judge, view = opened, Judge(opened), f"{look}, {lang}"
    dress(page, **LOOKS[look])
    steps = telling_steps(trace)
    put(page, lang=lang, selected=trace.steps[steps[0]].schedule.spans[0].request_id)
    paint_every_panel(page, steps)
    assert page.locator(".ss-body > div:visible").count() == len(STAGES)
    judge.look(f"{view}, every stage, table and warm-up", is_covered=look in ("forced colours", "200 %"))
    page.evaluate("() => document.body.classList.remove('judged-together')")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    judge.look(f"{view}, help", '[role="dialog"]', is_covered=True)
    page.keyboard.press("Escape")
    judge.verdict()


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_around_a_prediction_a_proof_a_lesson_and_an_error(opened, trace, look):
    page, judge = opened, Judge(opened)
    dress(page, **LOOKS[look])
    eager = telling_steps(trace)[3]
    proof = [["whatif.title", {}], ["whatif.title", {}]]
    lesson = {"mask": expand(("bucket", "deferrals")), "notes": {"": "Who waits, and why?"}, "revealed": []}
    put(page, lang="en", selected=-1, step=eager, stage=3, whatifs={trace.steps[eager].step: proof})
    put(page, is_live=True, alert="RuntimeError: gone", **lesson)
    judge.look(f"{look}, an error, a proof and a lesson")
    put(page, is_live=False, alert="", large=True)
    judge.look(f"{look}, large type", is_covered=True)
    put(page, whatifs={}, mask={}, notes={}, large=False, lang="zh")
    page.locator(".stepscope").focus()
    page.keyboard.press("p")
    put(page, ask="way")
    page.keyboard.press("ArrowRight")
    judge.look(f"{look}, a question")
    page.locator('.ss-predict [role="group"]:last-of-type button:visible').last.click()
    put(page, ask="cell")
    page.keyboard.press("ArrowRight")
    judge.look(f"{look}, an answer, and a question for a cell", ".ss-predict")
    page.keyboard.press("p")
    judge.verdict()


def test_axe_would_find_a_nameless_button_and_pale_text(opened):
    page = opened
    dress(page)
    put(page, lang="en", stage=0)
    judge = Judge(page)
    page.evaluate("""() => {
      const planted = document.createElement("p");
      planted.id = "planted";
      planted.innerHTML = '<button></button><span style="color:#ccc;background:#fff">pale</span>';
      document.querySelector(".ss-panel").append(planted);
    }""")
    judge.look("light", ".ss-panel")
    page.evaluate("() => document.getElementById('planted').remove()")
    assert {line.split(" | ")[1] for line in judge.found} >= {"button-name", "color-contrast"}
    with pytest.raises(AssertionError, match=r"^axe found\s+light \| button-name \| #planted"):
        judge.verdict()


CELLS = (
    "import lab\nfrom lab import Session, show\nprompts = ['The capital of France', 'Once upon a time', (2, 'x')]",
    """with Session('tiny', prompts=prompts) as one, Session('tiny', prompts=prompts[:2]) as two:
    first, second = one.run(), two.run()""",
    "show(first)",
    "show(compare=(first, second))",
    "lab.playground(prompts='0: The capital of France is', max_tokens=6)",
)
WIDGETS = {2: "the stepper", 3: "two runs", 4: "the playground"}
CELL = ".jp-Cell:nth-child({}) .jp-OutputArea"
KERNEL_IDLE = "() => window.jupyterapp.shell.currentWidget.sessionContext?.session?.kernel?.status === 'idle'"


def test_axe_finds_nothing_in_the_widgets_of_a_real_notebook(lab, open_page):
    (lab.folder / "axe.ipynb").write_text(notebook_of(CELLS), encoding="utf-8")
    page = open_page().page
    page.goto(f"{lab.url}/lab/tree/axe.ipynb?reset")
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.content?.widgets", timeout=120_000)
    page.wait_for_function(KERNEL_IDLE, timeout=120_000)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(
        "() => document.querySelectorAll('.stepscope[data-ready=\"1\"]').length === 3", timeout=120_000
    )
    page.get_by_role("button", name="Run", exact=True).wait_for(timeout=60_000)
    judge = Judge(page)
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
        page.wait_for_selector(f'body[data-jp-theme-name="{theme}"]', state="attached")
        for at, name in WIDGETS.items():
            page.locator(".jp-Cell").nth(at).scroll_into_view_if_needed()
            outputs = page.locator(".jp-Cell").nth(at).locator(".jp-OutputArea-output")
            outputs.first.evaluate("(node) => { node.id = 'judged'; }")
            judge.look(f"{theme}, {name}", "#judged")
            outputs.first.evaluate("(node) => node.removeAttribute('id')")
    page.close()
    judge.verdict()

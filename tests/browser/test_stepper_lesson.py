"""A teacher's link in a browser: parts hidden until somebody asks, notes, large type; cells to predict; idle steps."""

import pytest

from engine.config import SamplingParams
from lab.imports.outline_steps import Limits
from lab.imports.read_log import ImportSettings, import_log
from lab.session import Session
from lab.trace import Trace
from lab.widgets.lesson import make_lesson, step_numbers
from lab.widgets.masks import PARTS
from lab.widgets.predicted_cells import LISTS
from lab.widgets.predictions import score, truth
from lab.widgets.static import lesson_traits
from tests.browser.pages import check, focus, press, step_of
from tests.browser.test_stepper_alone import CONFIG, WORKLOAD

pytestmark = pytest.mark.browser

SPOKEN = """() => [...document.querySelectorAll("[aria-label], [aria-valuetext], [title]")]
  .filter((node) => node.checkVisibility())
  .map((node) => [node.getAttribute("aria-label"), node.getAttribute("aria-valuetext"), node.title].join(" "))
  .join("\\n")"""


@pytest.fixture(scope="module")
def trace():
    prompts = [(at, text, SamplingParams(max_tokens=count, ignore_eos=True)) for at, text, count in WORKLOAD]
    with Session("tiny", prompts=prompts, config=CONFIG) as session:
        return session.run()


@pytest.fixture(scope="module")
def padded(trace):
    """The index of a replayed step with padding rows."""
    return next(at for at, step in enumerate(trace.steps) if step.num_padding_rows and step.path.key)


@pytest.fixture
def lesson_page(page_over, trace):
    """Open the page over the trace with a teacher's options."""

    def open_one(mask=None, notes=None, large=False, **options):
        lesson = make_lesson(step_numbers(trace), mask=mask, notes=notes, large=large)
        page = page_over(trace, **lesson_traits(lesson), **options)
        focus(page)
        return page

    return open_one


def everything(page):
    """Return all that a reader or a screen reader gets of every panel and of the table."""
    told = []
    for _ in range(13):
        told.append(page.locator(".stepscope").inner_text())
        press(page, "PageDown")
    press(page, "t")
    told.append(page.locator(".stepscope").inner_text())
    press(page, "t")
    return "\n".join([*told, page.evaluate(SPOKEN)])


def of_step(page, part):
    """Return the texts that tell a part of the step that is shown."""
    places = {
        "path": ".ss-side .ss-path",
        "key": ".ss-side code",
        "bucket": ".ss-side .ss-ladder:visible",
    }
    return page.locator(places[part]).all_inner_texts()


def test_a_hidden_key_and_bucket_are_nowhere_until_they_are_asked_for(lesson_page, trace, padded):
    step = trace.steps[padded]
    page = lesson_page(mask=("key", "bucket"), step=padded)
    told = everything(page)
    assert step.graph.key not in told.split("All steps")[0]
    assert f"graph for {step.path.bucket}" not in told
    assert f"bucket {step.path.bucket}" not in told
    assert of_step(page, "path") == ["REPLAY"]
    assert (of_step(page, "key"), of_step(page, "bucket")) == (["?"], [])
    press(page, "m")
    assert of_step(page, "key") == [step.graph.key]
    assert len(of_step(page, "bucket")) == 1
    assert page.locator(".ss-mask button[aria-pressed=true]").all_inner_texts() == ["key", "bucket"]
    press(page, "ArrowRight")
    assert of_step(page, "key") == ["?"]
    press(page, "ArrowLeft")
    press(page, "m")
    assert of_step(page, "key") == ["?"]


@pytest.mark.parametrize("part", sorted(set(PARTS) - {"next"}))
def test_a_hidden_part_is_shown_by_its_button_and_hidden_again(lesson_page, trace, padded, part):
    eager = next(at for at, step in enumerate(trace.steps) if step.schedule.deferrals)
    at = eager if part in ("reason", "deferrals", "checklist") else padded
    stage = {"deferrals": 0, "padding": 4, "bucket": 2}.get(part, 3)
    page = lesson_page(mask=part, step=at, stage=stage)
    veil = page.locator(".ss-panel .ss-locked:visible")
    hidden = page.locator(".stepscope").inner_text()
    assert veil.count() == 1
    assert "press m" in veil.inner_text()
    button = page.locator(".ss-mask .ss-options button")
    button.click()
    press(page, "Shift")
    assert button.get_attribute("aria-pressed") == "true"
    assert veil.count() == 0
    assert page.locator(".stepscope").inner_text() != hidden
    button.click()
    press(page, "Shift")
    assert veil.count() == 1
    assert page.locator(".stepscope").inner_text() == hidden


def test_a_hidden_path_is_in_no_view_no_name_and_no_colour(lesson_page, trace):
    page = lesson_page(mask="path", step=3)
    legend = {"eager", "replay", "capture"}
    for word in ("HAS_CONTEXT_UNPROMOTED", "Eager", "EAGER", "REPLAY", "runs eagerly", "replays", "prefill graph"):
        assert word not in everything(page), word
    shown = page.locator(".ss-tl-legend").inner_text()
    assert all(word in shown for word in legend)
    assert page.locator(".stepscope").get_attribute("data-path") == "hidden"
    paths = page.locator(".ss-chart g[data-p]").evaluate_all("(all) => [...new Set(all.map((one) => one.dataset.p))]")
    assert paths == ["hidden"]
    page.get_by_role("button", name="In every step").click()
    press(page, "Shift")
    paths = page.locator(".ss-chart g[data-p]").evaluate_all("(all) => [...new Set(all.map((one) => one.dataset.p))]")
    assert sorted(paths) == ["eager", "replay"]
    assert "runs eagerly" in page.locator(".ss-main").inner_text()


def test_what_comes_next_is_hidden_until_the_reader_goes_there(lesson_page, trace):
    page = lesson_page(mask="next", step=4, stage=9)
    marks = page.locator(".ss-chart .ss-tlmark")
    assert marks.all_text_contents()[5:] == ["?"] * (len(trace) - 5)
    assert "?" not in marks.all_text_contents()[:5]
    assert page.locator(".ss-panel tbody tr:visible td:last-child").first.inner_text() == "?"
    press(page, "ArrowRight")
    assert step_of(page) == 5
    assert "?" not in marks.all_text_contents()[:6]
    press(page, "m")
    assert "?" not in marks.all_text_contents()


def test_who_waits_is_hidden_with_the_reason(lesson_page, trace):
    at = next(at for at, step in enumerate(trace.steps) if step.schedule.deferrals)
    reason = trace.steps[at].schedule.deferrals[0].reason
    page = lesson_page(mask="deferrals", step=at, stage=0)
    told = page.locator(".stepscope").inner_text()
    assert "held back" not in told
    assert reason not in told
    press(page, "m")
    assert reason in page.locator(".ss-panel").inner_text()


def test_a_stage_can_be_hidden_by_name(lesson_page):
    page = lesson_page(mask="PACKED", step=2, stage=4)
    assert page.locator(".ss-panel table:visible").count() == 0
    press(page, "t")
    assert page.locator(".ss-tables table:visible").count() == 1
    press(page, "t")
    page.get_by_role("button", name="Pack", exact=True).click()
    press(page, "Shift")
    assert page.locator(".ss-panel table:visible").count() == 1


def test_notes_are_plain_words_beside_their_step_and_stage_and_are_spoken(lesson_page):
    notes = {None: "Welcome.", 3: "Three <b>rows</b>?\nCount.", (3, 4): "Order!", (None, "run"): "Look at the key."}
    page = lesson_page(notes=notes, step=2)
    note = page.get_by_role("note", name="The teacher's notes")
    assert note.inner_text() == "Welcome."
    press(page, "ArrowRight")
    assert note.locator("p:visible").all_inner_texts() == ["Welcome.", "Three <b>rows</b>?\nCount."]
    assert note.locator("b").count() == 0
    press(page, "PageDown", 4)
    assert "Order!" in note.inner_text()
    page.wait_for_function("() => document.querySelector('[role=status]').textContent.includes('Order!')")
    press(page, "PageDown", 3)
    assert "Look at the key." in note.inner_text()
    assert "Order!" not in note.inner_text()


def test_without_a_teacher_there_is_no_bar_and_no_note(page_over, trace):
    page = page_over(trace)
    focus(page)
    press(page, "m")
    assert not page.locator(".ss-mask").is_visible()
    assert not page.locator(".ss-notes").is_visible()
    assert page.evaluate("() => model.get('revealed')") == []


def test_large_type_is_switched_by_key_and_button_and_nothing_is_cut(lesson_page):
    page = lesson_page(large=True, step=4, stage=4)
    size = "(one) => one.getBoundingClientRect().height"
    big = page.locator(".ss-main").evaluate(size)
    assert check(page, "overflowing") == []
    press(page, "l")
    small = page.locator(".ss-main").evaluate(size)
    assert big > 1.4 * small
    button = page.get_by_role("button", name="Large type")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    press(page, "Shift")
    assert page.locator(".ss-main").evaluate(size) == big
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    box = page.locator(".ss-chart").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.999, box["y"] + 20)
    page.wait_for_function("() => model.get('step') === 20")


@pytest.mark.parametrize("look", ["light", "dark", "chinese", "zoom", "large"])
def test_a_lesson_is_legible_named_and_fits(lesson_page, look):
    options = {"dark": look == "dark", "lang": "zh" if look == "chinese" else "en", "large": look == "large"}
    page = lesson_page(mask=(*PARTS, "PACKED"), notes={4: "word " * 60, None: "x" * 300}, step=4, **options)
    if look == "zoom":
        page.set_viewport_size({"width": 640, "height": 500})
        press(page, "Shift")
    for _ in range(13):
        assert check(page, "contrast")["low"] == []
        assert check(page, "roles") == []
        assert check(page, "overflowing") == []
        press(page, "PageDown")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def predict_cell(page, name, place, column=None):
    page.get_by_label("list").select_option(name)
    page.get_by_label("place").fill(str(place))
    if column is not None:
        page.get_by_label("block", exact=True).fill(str(column))
    press(page, "Tab")


@pytest.mark.parametrize("name", [*LISTS, "block_table"])
def test_the_next_cell_of_each_list_is_predicted_and_scored_as_the_kernel_does(page_over, trace, name):
    at = next(at for at, step in enumerate(trace.steps) if len(step.metadata.request_ids) > 2)
    page = page_over(trace, step=at - 1, stage=6, ask="cell")
    focus(page)
    press(page, "p")
    press(page, "ArrowRight")
    predict_cell(page, name, 1, 0 if name == "block_table" else None)
    cell = f"{name}[1]" + "[0]" * (name == "block_table")
    assert page.locator(".ss-predict .ss-lead").first.inner_text() == f"Step {at}: what will {cell} hold?"
    assert page.locator(".ss-panel table:visible").count() == 0
    right = truth(trace.steps[at], cell)
    page.get_by_label("what it will hold").fill(right)
    page.keyboard.press("Enter")
    press(page, "Shift")
    assert page.locator(".ss-answer").inner_text().startswith(f"✓ Right: {right}.")
    answers = page.evaluate("() => model.get('answers')")
    assert answers == {f"{at}{cell}": right}
    assert [one.is_right for one in score(trace, answers)] == [True]


def test_keys_in_a_field_do_not_step_and_escape_gives_the_keys_back(page_over, trace):
    page = page_over(trace, step=4, ask="cell")
    focus(page)
    press(page, "p")
    press(page, "ArrowRight")
    field = page.get_by_label("what it will hold")
    field.focus()
    for key in ("ArrowUp", "ArrowLeft", "Home", "End", "f"):
        page.keyboard.press(key)
    press(page, "Shift")
    assert step_of(page) == 5
    press(page, "Escape")
    press(page, "ArrowLeft")
    assert step_of(page) == 4


def test_a_cell_that_the_step_does_not_have_is_an_answer_too(page_over, trace):
    page = page_over(trace, step=4, ask="cell")
    focus(page)
    press(page, "p")
    press(page, "ArrowRight")
    predict_cell(page, "position_ids", 40)
    page.get_by_role("button", name="no such cell").click()
    press(page, "Shift")
    is_right = truth(trace.steps[5], "position_ids[40]") == "none"
    assert page.locator(".ss-answer").inner_text().startswith("✓" if is_right else "✗")


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A log with a step that had nothing to run."""
    path = tmp_path_factory.mktemp("log") / "steps.csv"
    lines = ["step,rows,requests,context_requests", "0,12,1,1", "1,0,0,0", "2,2,2,0", "3,0,0,0", "4,3,3,0"]
    path.write_text("\n".join(lines), encoding="utf-8")
    return import_log(path, "csv", ImportSettings(limits=Limits(buckets=(1, 2, 4, 8))))


def test_an_idle_step_is_a_state_of_its_own_everywhere(page_over, imported):
    page = page_over(imported, step=1)
    focus(page)
    assert page.locator(".ss-side .ss-path").inner_text() == "IDLE"
    assert "nothing to run" in page.locator(".ss-main").inner_text()
    paths = page.locator(".ss-chart g[data-p]").evaluate_all("(all) => all.map((one) => one.dataset.p)")
    marks = page.locator(".ss-chart .ss-tlmark").all_text_contents()
    assert (paths, marks) == (["eager", "idle", "replay", "idle", "replay"], ["!", "○", "●", "○", "●"])
    assert "nothing to run" in page.locator(".ss-tl-legend").inner_text()
    assert page.locator(".ss-chart").get_attribute("aria-label") == "Rows of each of 5 steps; 1 ran eagerly"
    press(page, "f")
    assert step_of(page) == 0
    press(page, "t")
    words = [row.split("\t")[1] for row in page.locator(".ss-tables tbody tr:visible").all_inner_texts()[:5]]
    assert words == ["eager", "idle", "replay", "idle", "replay"]
    press(page, "t")
    press(page, "ArrowRight")
    press(page, "PageDown", 3)
    assert page.locator(".ss-verdict strong").inner_text() == "idle"
    assert page.locator(".ss-panel table:visible").count() == 0
    assert check(page, "contrast")["low"] == []


def test_a_run_without_idle_steps_has_no_legend_of_them(page_over, trace):
    page = page_over(Trace(trace.header, trace.steps[:4]))
    assert "nothing to run" not in page.locator(".ss-tl-legend").inner_text()


def test_whether_a_step_is_idle_is_predicted_where_there_is_one(page_over, imported):
    page = page_over(imported, ask="path")
    focus(page)
    press(page, "p")
    press(page, "ArrowRight")
    page.locator(".ss-predict button", has_text="idle").click()
    press(page, "Shift")
    assert page.locator(".ss-answer").inner_text().startswith("✓ Right: idle.")
    assert truth(imported.steps[1], "path") == "idle"

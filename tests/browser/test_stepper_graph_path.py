"""The stepper on the graph path, in Chromium: the proof, addresses, prefill segments, steady steps, wrong rows."""

import dataclasses

import pytest

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from lab.counterfactuals.search import counterfactual
from lab.imports.outline_steps import Limits
from lab.imports.read_log import ImportSettings, import_log
from lab.session import Session
from lab.trace import RowMark, Trace
from lab.widgets.strings import translate
from lab.widgets.whatif import wanted
from tests.browser.pages import check, focus, press

pytestmark = pytest.mark.browser

PARAMS = SamplingParams(max_tokens=7, ignore_eos=True)
WORK = ("The capital of France", "Once upon a time", (2, "Water"), (4, "x"))


def record(**graphs):
    config = EngineConfig(
        device="cpu",
        max_seq_len=128,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=64),
        kv_cache=KVCacheConfig(num_blocks=32),
        cuda_graph=CudaGraphConfig(**graphs),
    )
    with Session("tiny", prompts=WORK, config=config, params=PARAMS) as session:
        return session.run()


@pytest.fixture(scope="module")
def eager():
    """A run whose larger batches have no bucket."""
    return record(batch_sizes=(1, 2))


@pytest.fixture(scope="module")
def good():
    """A run with padded, exact, steady and promoted steps."""
    return record(batch_sizes=(1, 2, 4))


@pytest.fixture(scope="module")
def prefill():
    """A run whose prompts take prefill graphs."""
    return record(batch_sizes=(1, 2, 4), prefill_num_tokens=(16, 32, 64))


def first(trace, is_wanted):
    return next(at for at, step in enumerate(trace.steps) if is_wanted(step))


def above(trace):
    return first(trace, lambda step: step.path.reason == "ABOVE_LARGEST_BUCKET")


def box(page):
    return page.locator(".ss-whatif")


def test_a_shipped_proof_stands_beside_its_eager_step_in_both_languages(page_over, eager):
    at = above(eager)
    answer = counterfactual(eager, at)
    page = page_over(eager, step=at, stage=3, whatifs=wanted(eager, {at: answer}))
    focus(page)
    assert box(page).locator("p:visible").all_inner_texts() == [translate(*said) for said in answer.say]
    assert "CudaGraphConfig.batch_sizes: (1, 2) → (1, 2, 3)." in box(page).inner_text()
    assert not box(page).locator("button").is_visible()
    page.locator(".ss-lang").click()
    press(page, "Shift")
    assert box(page).locator("p:visible").all_inner_texts() == [translate(*said, "zh") for said in answer.say]
    press(page, "ArrowLeft")
    assert not box(page).is_visible(), "no proof was shipped for that one, and there is no kernel to ask"


def test_a_reader_asks_the_kernel_for_the_proof_and_it_appears(page_over, eager):
    at = above(eager)
    page = page_over(eager, step=at, stage=3, can_prove=True)
    ask = page.get_by_role("button", name="Prove the smallest change")
    ask.click()
    press(page, "Shift")
    assert "Running the workload again" in box(page).inner_text()
    assert not ask.is_visible()
    [sent] = page.evaluate("() => model.sent")
    assert (sent["type"], sent["step"]) == ("prove", eager.steps[at].step)
    said = list(counterfactual(eager, at).say)
    page.evaluate("([step, said]) => model.set('whatifs', { [step]: said })", [str(eager.steps[at].step), said])
    page.evaluate("([v, s]) => model.receive({ type: 'done', view: v, seq: s }, [])", [sent["view"], sent["seq"]])
    press(page, "Shift")
    assert "Proved by a re-run" in box(page).inner_text()
    assert "Running the workload again" not in box(page).inner_text()
    focus(page)
    press(page, "f")
    assert ask.is_visible(), "the next eager step can be asked for again"


def test_a_proof_that_fails_is_an_alert_and_can_be_asked_for_again(page_over, eager):
    page = page_over(eager, step=above(eager), stage=3, can_prove=True)
    ask = page.get_by_role("button", name="Prove the smallest change")
    ask.click()
    [sent] = page.evaluate("() => model.sent")
    wrong = {"type": "error", "view": sent["view"], "seq": sent["seq"], "text": "TraceError: this trace cannot"}
    page.evaluate("(message) => model.receive(message, [])", wrong)
    press(page, "Shift")
    assert page.locator('[role="alert"]:visible').inner_text() == "! TraceError: this trace cannot"
    assert ask.is_visible()


def test_the_bucket_list_is_examined_where_the_buckets_stand(page_over, eager, good):
    page = page_over(eager, stage=2)
    found = page.locator(".ss-finding:visible").all_inner_texts()
    assert found == [
        "Batches of 3 are above the largest bucket and run eagerly.",
        "The largest batch that a step can hold, 4, is no bucket: add it to batch_sizes.",
    ]
    assert page_over(good, stage=2).locator(".ss-finding:visible").count() == 0


def address_rows(page):
    return page.locator(".ss-panel table", has=page.locator("caption", has_text="Addresses")).locator(
        "tbody tr:visible"
    )


def test_a_replay_shows_the_addresses_of_capture_and_now_and_the_pool(page_over, good):
    at = first(good, lambda step: step.path.num_padding)
    page = page_over(good, step=at, stage=7)
    captured = [item for item in good.steps[at].graph.check if item.name.startswith("address of ")]
    persistent = [view for view in good.steps[at].buffers if view.layer == "persistent"]
    rows = address_rows(page)
    assert rows.count() == len(captured) + len(persistent)
    texts = rows.all_inner_texts()
    assert all(text.startswith("✓") for text in texts)
    assert f"captured {captured[0].name.removeprefix('address of ')}" in texts[0]
    assert captured[0].expected in texts[0]
    assert f"Runner buffers: {persistent[0].name}" in texts[len(captured)]
    assert "All graphs share one memory pool of" in page.locator(".ss-panel").inner_text()


def test_a_tensor_that_moved_differs(page_over, good):
    moved = [
        dataclasses.replace(view, address=view.address + 64) if view.name == "input_ids" else view
        for view in good.steps[3].buffers
    ]
    steps = [*good.steps[:3], dataclasses.replace(good.steps[3], buffers=tuple(moved))]
    page = page_over(Trace(good.header, steps), step=3, stage=7)
    [row] = [text for text in address_rows(page).all_inner_texts() if "Runner buffers: input_ids" in text]
    assert row.startswith("✗")
    assert "differs" in row


def test_a_moved_tensor_of_the_metadata_differs_even_when_no_check_saw_it(page_over, good):
    at = first(good, lambda step: step.path.num_padding)
    moved = [
        dataclasses.replace(view, address=view.address + 64)
        if (view.layer, view.name) == ("metadata", "kv_lens")
        else view
        for view in good.steps[at].buffers
    ]
    steps = [*good.steps[:at], dataclasses.replace(good.steps[at], buffers=tuple(moved))]
    page = page_over(Trace(good.header, steps), step=at, stage=7)
    wrong = [text for text in address_rows(page).all_inner_texts() if text.startswith("✗")]
    assert len(wrong) == 1
    assert "captured metadata.kv_lens" in wrong[0]


def test_an_eager_step_has_addresses_and_nothing_simulated(page_over, good):
    page = page_over(good, step=0, stage=7)
    assert "Graph statics: seq_slots" in " ".join(address_rows(page).all_inner_texts())
    assert "Nothing was compared before this step" in page.locator(".ss-panel").inner_text()
    assert "ModelForward.eager" in page.locator(".ss-panel").inner_text()
    assert "simulated by the CPU tape" not in page.locator(".ss-panel").inner_text()


def bucket_rows(page):
    return [text.split("\t") for text in page.locator(".ss-panel tbody tr:visible").all_inner_texts()]


def test_after_a_release_the_panels_say_that_no_graph_is_there(page_over, good):
    at = first(good, lambda step: step.path.reason is None) + 1
    gone = dataclasses.replace(good.steps[at].graph, path="eager", key=None, check=(), pool_bytes=0)
    path = dataclasses.replace(good.steps[at].path, key=None, reason="CAPTURE_NOT_ALLOWED_NOW")
    trace = Trace(good.header, [*good.steps[:at], dataclasses.replace(good.steps[at], graph=gone, path=path)])
    page = page_over(trace, step=at, stage=2)
    assert [row[4] for row in bucket_rows(page)] == ["2 captured, released since"] * 3
    focus(page)
    press(page, "PageDown", 5)
    said = page.locator(".ss-panel").inner_text()
    assert "The captured graphs were released before this step: their memory pool is empty." in said
    assert "memory pool of 0 B" not in said
    press(page, "PageUp", 5)
    press(page, "ArrowLeft")
    assert [row[4] for row in bucket_rows(page)][1:] == ["2 captured, in the same memory", "2 captured, +2.0 MiB"]


def test_a_run_without_graphs_has_an_empty_pool(page_over):
    page = page_over(record(enabled=False), stage=7)
    assert "No graph holds memory: their pool is empty." in page.locator(".ss-panel").inner_text()


def test_a_bucket_counts_the_graphs_of_the_steps_own_draft_length(page_over, good):
    drafting = dataclasses.replace(good.steps[0].schedule, draft_len=4)
    trace = Trace(good.header, [dataclasses.replace(good.steps[0], schedule=drafting)])
    assert [row[4] for row in bucket_rows(page_over(trace, stage=2))] == ["not captured"] * 3


def test_a_graph_that_added_nothing_does_not_say_that_a_larger_one_is_there(page_over, prefill):
    at = first(prefill, lambda step: step.graph.path == "prefill_replay")
    said = page_over(prefill, step=at, stage=7).locator(".ss-panel").inner_text()
    assert "capturing this one added nothing to what earlier captures took." in said
    assert "larger" not in said


def test_a_steady_step_packs_nothing_and_its_cells_say_how_they_came(page_over, good):
    at = first(good, lambda step: not step.graph.steady)
    page = page_over(good, step=at, stage=4)
    panel = page.locator(".ss-panel")
    assert "nothing packed: positions +1 in place" in panel.inner_text()
    assert "Packed in full" not in panel.inner_text()
    ribbons = panel.locator(".ss-ribbon:visible")
    count = good.steps[at].rows.num_rows
    assert ribbons.nth(0).locator('.ss-cell[data-s="live"] small').all_inner_texts() == ["⇄"] * count
    assert ribbons.nth(1).locator('.ss-cell[data-s="live"] small').all_inner_texts() == ["+1"] * count
    focus(page)
    press(page, "PageDown")
    assert "engine/inputs/prepare.py" in panel.inner_text()
    assert "advance_inputs" in panel.inner_text()
    assert "seq_slots" in panel.inner_text()
    assert panel.locator('.ss-cell[data-s="kept"]:visible').count() >= count


def test_a_full_step_says_why_it_was_packed_and_who_was_promoted(page_over, good):
    at = first(good, lambda step: step.schedule.promoted)
    page = page_over(good, step=at, stage=4)
    text = page.locator(".ss-panel").inner_text()
    assert "Promoted: the last prompt token of r3 is laid out as a decode row (E)" in text
    assert "Packed in full: " in text
    padded = page_over(good, step=first(good, lambda step: step.path.num_padding), stage=4)
    assert "Packed in full: the step before left no record to go on from." in padded.locator(".ss-panel").inner_text()


def test_several_that_were_promoted_are_told_together_in_both_languages(page_over, good):
    at = first(good, lambda step: step.schedule.promoted)
    schedule = dataclasses.replace(good.steps[at].schedule, promoted=(0, 3))
    steps = [*good.steps[:at], dataclasses.replace(good.steps[at], schedule=schedule)]
    for lang in ("en", "zh"):
        for stage, name in ((2, "pad.promoted"), (4, "rows.promoted")):
            text = (
                page_over(Trace(good.header, steps), step=at, stage=stage, lang=lang).locator(".ss-panel").inner_text()
            )
            assert translate(name, {"who": "r0, r3", "n": 2}, lang) in text


def test_a_prefill_step_is_on_the_graph_path_with_its_bucket_and_tail(page_over, prefill):
    at = first(prefill, lambda step: step.graph.path == "prefill_replay")
    step = prefill.steps[at]
    padded = step.metadata.padded_num_tokens
    page = page_over(prefill, step=at, stage=2)
    panel = page.locator(".ss-panel")
    assert panel.locator('.ss-bucket[data-s="chosen"]:visible').inner_text() == str(padded)
    assert panel.locator("tr.ss-hit:visible").count() == 1
    assert f"go through the prefill graph for {padded}" in panel.inner_text()
    focus(page)
    press(page, "PageDown")
    assert "Graph path" in panel.inner_text()
    assert "attention runs eagerly in between" in panel.inner_text()
    press(page, "PageDown")
    assert f"Rows {step.rows.num_rows} to {padded - 1} are the zero-filled tail" in panel.inner_text()
    press(page, "PageDown", 3)
    assert step.graph.key in panel.inner_text()
    assert "PrefillGraphs.run" in panel.inner_text()
    assert "prefill segments" in page.locator(".ss-tl-legend").inner_text()
    assert page.locator(".stepscope").get_attribute("data-path") == "prefill_replay"


def test_the_tail_of_a_prefill_bucket_is_padding_in_the_timeline_and_the_table(page_over, prefill):
    at = first(prefill, lambda step: step.num_tail_rows)
    step = prefill.steps[at]
    page = page_over(prefill, step=at)
    page.locator(".ss-chart").hover(position={"x": 5 + at * 1000 / len(prefill.steps), "y": 30})
    assert f"{step.num_rows} rows ({step.num_padding_rows} padding)" in page.locator(".ss-tip").inner_text()
    column = page.locator(".ss-chart > g > g").nth(at).locator("rect")
    heights = [float(column.nth(part).get_attribute("height")) for part in (0, 1)]
    assert heights[1] / sum(heights) == pytest.approx(step.num_padding_rows / step.num_rows, abs=0.01)
    most = max(step.num_rows for step in prefill.steps)
    assert f"rows (√ scale, most {most})" in page.locator(".ss-tl-legend").inner_text()
    focus(page)
    press(page, "t")
    cells = page.locator(".ss-tables tbody tr").nth(at).locator("td").all_inner_texts()
    assert cells[3:5] == [str(step.num_rows), str(step.num_padding_rows)]


def test_an_imported_prefill_step_uses_its_own_rows_of_the_bucket(page_over, tmp_path):
    file = tmp_path / "log.csv"
    file.write_text(
        "step,rows,requests,context_requests,context_rows,path,padded_rows\n0,37,2,2,37,prefill_replay,64\n",
        encoding="utf-8",
    )
    trace = import_log(file, "csv", ImportSettings(limits=Limits(buckets=(1, 2), prefill_buckets=(64,))))
    page = page_over(trace)
    assert "37 of 64 rows used, 42 % waste" in page.locator(".ss-side").inner_text()
    page.locator(".ss-chart").hover(position={"x": 20, "y": 30})
    assert "64 rows (27 padding)" in page.locator(".ss-tip").inner_text()


def test_a_prefill_step_can_be_predicted(page_over, prefill):
    at = first(prefill, lambda step: step.step and step.graph.path == "prefill_replay")
    page = page_over(prefill, step=at - 1)
    focus(page)
    press(page, "p")
    press(page, "ArrowRight")
    page.locator(".ss-options button", has_text="prefill segments").click()
    press(page, "Shift")
    assert page.locator(".ss-answer").inner_text().startswith("✓ Right: prefill segments.")


def test_wrong_rows_are_marked_in_the_rows_the_buffers_and_the_timeline(page_over, good):
    marks = (RowMark(6, 1, "samples 104, the healthy run 99"), RowMark(6, 3, "samples 1, the healthy run 0"))
    page = page_over(Trace(good.header, good.steps, marks), step=6, stage=4)
    assert "2 rows differ from the run that this one is compared with" in page.locator(".ss-say").inner_text()
    wrong = page.locator(".ss-panel tr.ss-wrong:visible")
    assert [row.locator("th").inner_text() for row in wrong.all()] == ["✗ 1", "✗ 3"]
    assert wrong.nth(0).get_attribute("title") == "samples 104, the healthy run 99"
    notes = page.locator(".ss-panel .ss-finding:visible").all_inner_texts()
    assert notes == ["✗ row 1: samples 104, the healthy run 99", "✗ row 3: samples 1, the healthy run 0"]
    assert page.locator(".ss-panel .ss-cell.ss-wrong:visible").count() == 4
    assert page.locator(".ss-chart g[data-wrong]:visible").count() == 1
    focus(page)
    press(page, "PageDown", 4)
    assert [row.locator("th").inner_text() for row in page.locator(".ss-panel tr.ss-wrong:visible").all()] == [
        "✗ r1",
        "✗ r3",
    ]
    press(page, "PageUp", 4)
    press(page, "ArrowLeft")
    assert page.locator(".ss-panel .ss-wrong:visible").count() == 0


@pytest.mark.parametrize("look", [(dark, lang) for dark in (False, True) for lang in ("en", "zh")])
def test_all_of_it_is_legible_named_and_fits(page_over, eager, good, prefill, look):
    dark, lang = look
    at = above(eager)
    marked = Trace(good.header, good.steps, (RowMark(6, 1, "samples 104, the healthy run 99"),))
    shown = [
        (eager, at, (2, 3), {"whatifs": wanted(eager, {at: counterfactual(eager, at)})}),
        (eager, at, (3,), {"can_prove": True}),
        (marked, 6, (4, 5, 7), {}),
        (prefill, 0, (2, 3, 4, 7), {}),
    ]
    for trace, step, stages, traits in shown:
        for stage in stages:
            page = page_over(trace, step=step, stage=stage, dark=dark, lang=lang, **traits)
            assert check(page, "contrast")["low"] == []
            assert check(page, "roles") == []
            assert check(page, "overflowing") == []
            page.close()

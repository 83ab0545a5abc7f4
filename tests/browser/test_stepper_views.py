"""The views beside the stages, in Chromium: block ledger, budgets, reuse tree, overlap; and verify rows."""

import dataclasses

import pytest

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.llm import LLM
from lab.session import attach
from lab.trace import Trace
from lab.widgets.strings import translate
from tests.browser.pages import check, focus, press

pytestmark = pytest.mark.browser

PARAMS = SamplingParams(max_tokens=14, ignore_eos=True)
SYSTEM = "You are a helpful assistant. "
LATER = (
    SYSTEM + "Where is Paris on a map of Europe?",
    "A new prompt of its own, rather long, that takes several blocks of the pool",
    "And one more that must wait for the blocks of another to come back",
)
BLOCKS, TREE, OVERLAP = 10, 11, 12


def record(*, overlap):
    """A pool that is too small: prefixes are shared, blocks are evicted to the host, requests wait, drafts fail."""
    config = EngineConfig(
        device="cpu",
        max_seq_len=128,
        overlap=overlap,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=48, draft_len=3, chunking="fcfs"),
        kv_cache=KVCacheConfig(num_blocks=30, tokens_per_block=8, host_blocks=8),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4), draft_lens=(3,)),
    )
    with LLM("tiny", config) as llm:
        guess = list(llm.generate(SYSTEM + "What is the sea?", PARAMS)[0].token_ids)
        guess[6] = (guess[6] + 1) % 256
        llm.generate("Something quite different, and long enough for blocks", PARAMS)
        with attach(llm, mode="full") as recorder:
            llm.submit(SYSTEM + "What is the sea?", PARAMS, draft_tokens=guess)
            llm.submit(SYSTEM + "What is rain?", PARAMS)
            for at in range(60):
                for prompt in LATER if at == 3 else ():
                    llm.submit(prompt, PARAMS)
                if llm.has_unfinished:
                    llm.step()
            recorder.check()
            return recorder.trace


@pytest.fixture(scope="module")
def plain():
    return record(overlap=False)


@pytest.fixture(scope="module")
def overlapped():
    return record(overlap=True)


def first(trace, is_wanted):
    return next(at for at, step in enumerate(trace.steps) if is_wanted(step))


def test_every_block_says_its_owners_or_that_it_is_cached_or_free(page_over, plain):
    at = first(plain, lambda step: any(len(one.request_ids) > 1 for one in step.reservation.ledger.owners))
    state = plain.ledger(at, at_reservation=True)
    page = page_over(plain, step=at, stage=BLOCKS)
    signs = page.locator(".ss-panel .ss-pool:visible").first.locator(".ss-block:visible").all_inner_texts()
    assert len(signs) == state.num_blocks
    cached = state.cached_blocks()
    for block, sign in enumerate(signs):
        owners = state.owners.get(block, ())
        if len(owners) > 1:
            assert sign == f"×{len(owners)}"
        elif owners:
            assert sign == ("P" if owners[0] < 0 else str(owners[0]))
        else:
            assert sign == ("c" if block in cached else "")
    held, shared = len(state.owners), sum(len(ids) > 1 for ids in state.owners.values())
    lead = page.locator(".ss-panel .ss-lead:visible").inner_text()
    assert lead.startswith(f"{held} of {state.num_blocks} blocks are held ({shared} shared), {len(cached)} cached")


def test_blocks_that_went_to_the_host_are_shown_there_with_their_copies(page_over, plain):
    at = first(plain, lambda step: any(copy.kind == "OFFLOAD" for copy in step.reservation.copies))
    state = plain.ledger(at, at_reservation=True)
    page = page_over(plain, step=at, stage=BLOCKS)
    signs = page.locator(".ss-panel .ss-pool:visible").nth(1).locator(".ss-block:visible").all_inner_texts()
    assert len(signs) == 8
    assert [block for block, sign in enumerate(signs) if sign == "h"] == sorted(state.host_blocks())
    copies = page.locator(".ss-panel table:visible", has_text="Blocks copied before the forward")
    assert copies.locator("tbody tr:visible").count() == len(plain.steps[at].reservation.copies)
    assert "device to host (evicted)" in copies.inner_text()


def test_a_followed_request_is_marked_in_every_view(page_over, plain):
    at = first(plain, lambda step: any(len(one.request_ids) > 1 for one in step.reservation.ledger.owners))
    rid = plain.steps[at].schedule.spans[-1].request_id
    page = page_over(plain, step=at, stage=0, selected=rid)
    focus(page)
    for stage in (0, BLOCKS, TREE):
        while page.locator(".ss-panel").get_attribute("data-stage") != str(stage):
            press(page, "PageDown")
        assert page.locator(".ss-panel .ss-sel:visible").count() >= 2, f"stage {stage}"
    page.locator(".ss-panel .ss-tree [data-r]").first.click()
    press(page, "Shift")
    assert page.evaluate("() => model.get('selected')") >= 0


def test_a_shared_node_follows_its_users_one_after_the_other(page_over, plain):
    at = first(plain, lambda step: step.step and any(len(o.request_ids) > 1 for o in step.reservation.ledger.owners))
    page = page_over(plain, step=at, stage=TREE)
    shared = page.locator('.ss-tree [data-r*=" "]').first
    users = [int(one) for one in shared.get_attribute("data-r").split()]
    seen = []
    for _ in users:
        shared.click()
        seen.append(page.evaluate("() => model.get('selected')"))
    assert seen == users


def test_the_tree_has_every_node_and_says_where_it_lies(page_over, plain):
    at = first(plain, lambda step: any(copy.kind == "OFFLOAD" for copy in step.reservation.copies))
    state = plain.ledger(at)
    page = page_over(plain, step=at, stage=TREE)
    lead = page.locator(".ss-panel .ss-lead:visible").inner_text()
    held = sum(bool(set(place.blocks) & state.owners.keys()) for place in state.places.values())
    host = len(state.host_blocks())
    cached = len(state.nodes) - held - host
    assert lead.startswith(f"{len(state.nodes)} full blocks: {held} in use, {cached} cached, {host} on the host")
    rows = page.locator(".ss-panel table:visible tbody tr:visible")
    counts = [int(row.locator("td").first.inner_text()) for row in rows.all()]
    assert sum(counts) == len(state.nodes)
    assert page.locator(".ss-tree > span:visible").count() == len(counts)
    assert "on the host" in page.locator(".ss-tree").inner_text()


def test_budgets_are_cut_by_request_and_every_deferral_has_numbers_and_a_fix(page_over, plain):
    at = first(plain, lambda step: len({d.reason for d in step.schedule.deferrals}) > 1)
    step = plain.steps[at]
    page = page_over(plain, step=at, stage=0)
    rows = page.locator(".ss-panel .ss-budget-row:visible").first.locator("i:visible")
    assert rows.all_inner_texts() == [f"r{span.request_id}" for span in step.schedule.spans]
    text = page.locator(".ss-panel").inner_text()
    for deferral in step.schedule.deferrals:
        numbers = {"request": f"r{deferral.request_id}", "needed": deferral.needed, "available": deferral.available}
        assert translate(f"held.{deferral.reason}", numbers) in text
        assert "→ " + translate(f"fix.{deferral.reason}") in text


def test_verify_rows_show_drafts_what_was_accepted_and_the_rewind(page_over, plain):
    at = first(plain, lambda step: any(0 < count < 3 for _, count in step.outcome.accepted))
    [(rid, count)] = [pair for pair in plain.steps[at].outcome.accepted if pair[1]]
    page = page_over(plain, step=at, stage=4, selected=rid)
    focus(page)
    panel = page.locator(".ss-panel")
    assert panel.locator("tbody tr.ss-sel:visible").count() == 4
    assert panel.inner_text().count("draft, copied by the host") == 3 * len(plain.steps[at].outcome.accepted)
    assert "0 generation" in panel.inner_text()
    press(page, "PageDown", 4)
    sampled = panel.locator("tbody tr.ss-sel:visible").all_inner_texts()
    assert len(sampled) == count + 1
    assert "draft accepted" in sampled[0]
    assert f"{count} of 3 drafts accepted" in sampled[-1]
    press(page, "PageDown")
    assert f"r{rid} −{3 - count}" in panel.inner_text()
    assert f"{count} of 3 drafts accepted" in page.locator(".ss-journey").inner_text()


def test_the_lanes_show_the_launch_before_the_read_and_claim_no_times(page_over, overlapped):
    at = first(overlapped, lambda step: step.graph.flight.late)
    number = overlapped.steps[at].step
    page = page_over(overlapped, step=at, stage=OVERLAP)
    panel = page.locator(".ss-panel")
    events = page.locator('.ss-lanes [data-lane="host"]:visible').all_inner_texts()
    assert events.index(f"launch {number}") < events.index(f"read {number - 1}")
    assert f"handed over before the samples of step {number - 1} were read" in panel.inner_text()
    assert "Order only" in panel.inner_text()
    assert "simulated: one processor does both" in panel.inner_text()
    assert not page.locator(".ss-to-scale").is_visible()
    late = panel.locator("table:visible", has_text="Tokens that were on the device").locator("tbody tr:visible")
    wanted = sum(end - start for start, end, _ in overlapped.steps[at].graph.flight.late)
    assert late.count() == wanted
    focus(page)
    press(page, "PageDown", 5)
    assert "late: of step" in panel.inner_text()


def test_without_overlap_every_sample_is_read_first(page_over, plain):
    page = page_over(plain, step=4, stage=OVERLAP)
    text = page.locator(".ss-panel").inner_text()
    assert "every sample had been read" in text
    assert "Tokens that were on the device" not in text


def test_device_times_are_drawn_only_when_events_measured_them(page_over, overlapped):
    steps = [
        dataclasses.replace(
            step,
            graph=dataclasses.replace(
                step.graph,
                flight=dataclasses.replace(step.graph.flight, device_us=(1000 * at, 1000 * at + 900)),
            ),
        )
        for at, step in enumerate(overlapped.steps)
    ]
    page = page_over(Trace(overlapped.header, steps), step=8, stage=OVERLAP)
    shown = page.locator(".ss-to-scale .ss-event-box:visible").all_inner_texts()
    assert [text.split(": ")[1] for text in shown] == ["900 µs"] * 3
    assert "between them the device waited 100 µs, 100 µs" in page.locator(".ss-panel").inner_text()


def test_a_forward_too_short_for_its_label_has_none_but_a_title(page_over, overlapped):
    steps, begin = [], 0
    for at, step in enumerate(overlapped.steps):
        us = 40 if at % 2 else 3000
        flight = dataclasses.replace(step.graph.flight, device_us=(begin, begin + us))
        steps.append(dataclasses.replace(step, graph=dataclasses.replace(step.graph, flight=flight)))
        begin += us + 60
    page = page_over(Trace(overlapped.header, steps), step=8, stage=OVERLAP)
    first, here, last = (step.step for step in steps[7:10])
    assert check(page, "labels") == [[f"{here}: 3.0 ms"], [f"{first}: 40 µs", f"{last}: 40 µs"], []]
    titles = [one.get_attribute("title") for one in page.locator(".ss-to-scale > span:visible").all()]
    assert titles == [f"{first}: 40 µs", f"{here}: 3.0 ms", f"{last}: 40 µs"]
    assert page.locator(".ss-to-scale").get_attribute("aria-label") == ", ".join(titles)


@pytest.mark.parametrize("width", [1400, 900, 660])
def test_no_name_in_a_budget_or_a_strip_of_rows_is_cut(page_over, plain, width):
    at = first(plain, lambda step: any(span.kind == "C" for span in step.schedule.spans[1:]) or step.schedule.deferrals)
    page = page_over(plain, step=at, stage=0)
    page.set_viewport_size({"width": width, "height": 1000})
    focus(page)
    for _ in range(5):
        press(page, "PageDown")
        assert check(page, "labels")[2] == []
    press(page, "PageUp")
    whole, absent, _ = check(page, "labels")
    assert len(whole) + len(absent) == page.locator(".ss-seg:visible").count()
    assert whole


def test_an_old_trace_says_what_it_does_not_know(page_over, plain):
    steps = [
        dataclasses.replace(
            step,
            reservation=dataclasses.replace(step.reservation, ledger=None),
            outcome=dataclasses.replace(step.outcome, ledger=None),
            graph=dataclasses.replace(step.graph, flight=type(step.graph.flight)()),
        )
        for step in plain.steps[:6]
    ]
    page = page_over(Trace(plain.header, steps), step=4, stage=BLOCKS)
    assert "recorded before the ledger was" in page.locator(".ss-panel").inner_text()
    focus(page)
    press(page, "PageDown")
    assert "The tree is empty" in page.locator(".ss-panel").inner_text()
    press(page, "PageDown")
    assert "recorded before the order of steps was" in page.locator(".ss-panel").inner_text()


@pytest.mark.parametrize("look", [(dark, lang) for dark in (False, True) for lang in ("en", "zh")])
def test_every_view_is_legible_named_and_fits_at_any_zoom(page_over, plain, overlapped, look):
    dark, lang = look
    waits = first(plain, lambda step: len({d.reason for d in step.schedule.deferrals}) > 1)
    moved = first(plain, lambda step: any(copy.kind == "OFFLOAD" for copy in step.reservation.copies))
    for trace, step, stages in ((plain, waits, (0, 4, 8, 9, 10)), (plain, moved, (10, 11)), (overlapped, 8, (4, 12))):
        page = page_over(trace, step=step, stage=stages[0], dark=dark, lang=lang, selected=3)
        focus(page)
        for stage in stages:
            while page.locator(".ss-panel").get_attribute("data-stage") != str(stage):
                press(page, "PageDown")
            for width in (1400, 660):  # the second is a window of 1320 at 200 %
                page.set_viewport_size({"width": width, "height": 1000})
                press(page, "Shift")
                assert check(page, "contrast")["low"] == []
                assert check(page, "roles") == []
                assert check(page, "overflowing") == []
        page.close()

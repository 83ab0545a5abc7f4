import dataclasses

import numpy as np
import torch

from engine.config import SamplingParams
from engine.cuda_graphs.dummies import PADDING_DUMMY_ID
from engine.cuda_graphs.key import SampleMode, make_key
from engine.cuda_graphs.select import GraphFacts, select_graph
from engine.inputs.pack import pack
from engine.inputs.records import CheckedItem, ReplayCheck, RunEvent
from engine.kv_cache.copies import BlockCopy, CopyKind
from engine.llm_request import LlmRequest, RequestSpec
from engine.reasons import DeferralReason, PathKind
from engine.resources import Reservation
from engine.scheduled import BudgetUse, Deferral, PaddedBatch, RowKind, ScheduledRequests, Span, context_span
from lab import freeze
from lab.ledger import CopyView, LedgerView
from lab.snapshot import ROW_SOURCES, DeferralView


def request(request_id, prompt, *, slot=0, is_dummy=False):
    made = LlmRequest(RequestSpec(request_id, tuple(prompt), SamplingParams(), is_dummy=is_dummy))
    made.py_seq_slot = slot
    return made


def generating(request_id, prompt, token, slot):
    made = request(request_id, prompt, slot=slot)
    made.generated.append(token)
    made.py_batch_idx = slot
    return made


def facts(**changes):
    base = GraphFacts(
        num_requests=3,
        num_contexts=0,
        draft_len=0,
        sample_mode=SampleMode.GREEDY,
        graphs_enabled=True,
        is_warmup=False,
        padding_enabled=True,
        buckets=(1, 2, 4),
        max_batch_size=4,
        dummy_available=True,
        captured=(make_key(padded_batch_size=4, draft_len=0, sample_mode=SampleMode.GREEDY),),
    )
    return dataclasses.replace(base, **changes)


def test_a_schedule_is_copied_with_its_deferrals_and_budget():
    span = context_span(request(5, [1, 2, 3]), 3)
    deferral = Deferral(6, DeferralReason.NO_FREE_BLOCKS, 4, 1)
    scheduled = ScheduledRequests((span,), (), (request(9, [1]),), (deferral,), BudgetUse(3, 64, 1, 4, 12))
    view = freeze.freeze_schedule(scheduled, freeze.freeze_deferrals(scheduled.deferrals), promoted=(5,))
    assert (view.spans[0].request_id, view.spans[0].kind, view.spans[0].num_logit_rows) == (5, "C", 1)
    assert view.paused == (9,)
    assert view.deferrals == (DeferralView(6, "NO_FREE_BLOCKS", 4, 1),)
    assert (view.budget.num_tokens, view.budget.num_free_blocks) == (3, 12)
    assert view.promoted == (5,)


def test_a_reservation_is_copied():
    copies = (BlockCopy(CopyKind.ONBOARD, 2, 4, 16), BlockCopy(CopyKind.DEVICE, 9, 5, 3))
    changed = LedgerView(8, 0)
    view = freeze.freeze_reservation(Reservation(((1, 16),), ((1, 0),), ((1, (4, 5)),), copies, 7), changed)
    assert view.credits == ((1, 16),)
    assert view.copies == (CopyView("ONBOARD", 2, 4, 16), CopyView("DEVICE", 9, 5, 3))
    assert view.ledger is changed
    assert view.new_blocks == ((1, (4, 5)),)
    assert view.num_free_blocks == 7


def test_a_chosen_graph_and_a_refusal_are_copied_with_their_conditions():
    chosen = freeze.freeze_path(select_graph(facts()))
    assert (chosen.bucket, chosen.num_padding, chosen.reason) == (4, 1, None)
    assert chosen.key.startswith("(batch 4")
    assert all(condition.passed for condition in chosen.conditions)
    refused = freeze.freeze_path(select_graph(facts(num_requests=5)))
    assert (refused.key, refused.reason, refused.num_padding) == (None, "ABOVE_LARGEST_BUCKET", 0)
    assert {condition.passed for condition in refused.conditions} == {True, False, None}


def test_rows_say_prompt_host_previous_sample_and_zero_fill():
    prompt = request(1, [11, 12, 13], slot=1)
    resumed = request(2, [21, 22], slot=2)
    resumed.generated.append(23)
    running = generating(3, [31], 32, slot=3)
    dummy = request(PADDING_DUMMY_ID, [1], slot=4, is_dummy=True)
    padding = Span(dummy, RowKind.PADDING, 0, 1, 1)
    rows = (
        context_span(prompt, 3),
        Span(resumed, RowKind.GENERATION, 2, 1, 1),
        Span(running, RowKind.GENERATION, 1, 1, 1),
        padding,
        padding,
    )
    scheduled = ScheduledRequests(rows[:1], rows[1:3], (), (), BudgetUse(5, 64, 3, 4))
    batch = PaddedBatch(scheduled, rows, 2)
    view = freeze.freeze_rows(pack(batch, lambda _: (0,)), freeze.spans_by_request(batch))
    assert view.request_ids.tolist() == [1, 1, 1, 2, 3, -2, -2]
    assert view.token_ids.tolist() == [11, 12, 13, 23, 32, 0, 0]
    assert view.positions.tolist() == [0, 1, 2, 2, 1, 0, 0]
    assert "".join("CEGP"[code] for code in view.kinds) == "CCCGGPP"
    assert [ROW_SOURCES[code] for code in view.sources] == [
        *["prompt"] * 3, "host", "previous_sample", "zero_fill", "zero_fill",
    ]  # fmt: skip
    assert view.source_slots.tolist() == [-1, -1, -1, -1, 3, -1, -1]
    assert view.gather_ids.tolist() == [2, 3, 4, 5, 6]


def test_a_verify_row_is_its_own_token_and_its_drafts():
    made = request(3, [31], slot=3)
    made.generated.append(32)
    span = Span(made, RowKind.EXTEND, 1, 3, 3, 1, (40, 41))
    batch = PaddedBatch(ScheduledRequests((), (span,), (), (), BudgetUse(3, 64, 1, 4), 2), (span,))
    view = freeze.freeze_rows(pack(batch, lambda _: (0,)), {3: span})
    assert view.token_ids.tolist() == [32, 40, 41]
    assert [ROW_SOURCES[code] for code in view.sources] == ["host", "draft", "draft"]
    schedule = freeze.freeze_schedule(batch.scheduled, ())
    assert (schedule.draft_len, schedule.spans[0].drafts) == (2, (40, 41))


def test_verify_rows_whose_tokens_are_on_the_device_gather_one_sample_a_request():
    spans = []
    for slot in (3, 5):
        made = generating(slot, [31], 32, slot=slot)
        made.num_in_flight = 1
        spans.append(Span(made, RowKind.EXTEND, 2, 3, 3, 1, (40, 41)))
    batch = PaddedBatch(ScheduledRequests((), tuple(spans), (), (), BudgetUse(6, 64, 2, 4), 2), tuple(spans))
    view = freeze.freeze_rows(pack(batch, lambda _: (0,)), freeze.spans_by_request(batch))
    assert view.source_slots.tolist() == [3, -1, -1, 5, -1, -1]
    assert view.token_ids.tolist() == [-1] * 6


def test_spans_that_were_fitted_again_are_kept_as_they_were_asked():
    budget = BudgetUse(3, 64, 1, 4)
    first, second = request(5, [1, 2, 3]), request(6, [1, 2, 3, 4])
    asked = ScheduledRequests((context_span(first, 3), context_span(second, 2)), (), (), (), budget)
    second.context_current_position = 2
    ran = ScheduledRequests((asked.context_requests[0], context_span(second, 2)), (), (), (), budget)
    before, after = (freeze.freeze_schedule(one, ()) for one in (asked, ran))
    fitted = freeze.fitted_again(before, after)
    assert [(span.request_id, span.start) for span in fitted.asked] == [(6, 0)]
    assert fitted.spans == after.spans
    assert freeze.fitted_again(before, before) is before


def test_a_sample_that_the_host_has_not_read_is_unknown():
    running = generating(3, [31], 32, slot=3)
    ahead = Span(running, RowKind.GENERATION, 2, 1, 1)
    batch = PaddedBatch(ScheduledRequests((), (ahead,), (), (), BudgetUse(1, 64, 1, 4)), (ahead,))
    assert freeze.freeze_rows(pack(batch, lambda _: (0,)), {3: ahead}).token_ids.tolist() == [-1]


def test_a_replay_check_is_copied_line_by_line():
    check = ReplayCheck((CheckedItem("kv_lens", "0x1", "0x2", False),))
    view = freeze.freeze_event(RunEvent(PathKind.REPLAY, True, "(batch 1)", check, 99, steady_refusal=None))
    assert (view.path, view.simulated, view.pool_bytes) == ("replay", True, 99)
    assert (view.check[0].name, view.check[0].passed) == ("kv_lens", False)
    assert freeze.freeze_event(RunEvent(PathKind.EAGER, True, None, None, 0, steady_refusal=None)).check == ()


def test_facts_of_a_cut_view_are_those_of_its_storage():
    buffer = torch.zeros(64, dtype=torch.int32)
    view = freeze.tensor_facts(buffer[:3])
    assert (view.capacity, view.dtype) == (64, "int32")
    assert freeze.tensor_facts(torch.zeros(4, 8)).capacity == 4


def test_values_are_copies():
    buffer = torch.arange(6, dtype=torch.int32)
    values = freeze.tensor_values(buffer, 4)
    buffer.zero_()
    assert values.tolist() == [0, 1, 2, 3]
    assert freeze.tensor_values(torch.ones(3, 5), 2, 4).shape == (2, 4)
    assert freeze.tensor_values(torch.ones(2, dtype=torch.bfloat16), 2).dtype == np.float32


def test_versions_name_the_software():
    assert {"python", "torch", "numpy", "stepscope"} <= freeze.versions().keys()

"""Promotion of final contexts: all or nothing, and only one-token remainders."""

from hypothesis import given
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.cuda_graphs.promote import promote_final_contexts
from engine.inputs.host_inputs import TokenSource
from engine.inputs.pack import pack, token_source
from engine.llm_request import LlmRequest, RequestSpec
from engine.scheduled import BudgetUse, PaddedBatch, RowKind, ScheduledRequests, context_span


def context(request_id, prompt_len, cursor=0):
    request = LlmRequest(RequestSpec(request_id, tuple(range(10, 10 + prompt_len)), SamplingParams()))
    request.context_current_position = cursor
    request.py_seq_slot = request_id
    return request


def batch(*spans):
    return ScheduledRequests(tuple(spans), (), (), (), BudgetUse(0, 0, 0, 0))


def test_a_one_token_remainder_becomes_a_decode_row_with_the_prompts_last_token():
    request = context(1, prompt_len=9, cursor=8)
    scheduled = batch(context_span(request, 1))
    (row,) = promote_final_contexts(scheduled, graphs_enabled=True)
    assert (row.kind, row.start, row.num_rows, row.num_logit_rows) == (RowKind.EXTEND, 8, 1, 1)
    host = pack(PaddedBatch(scheduled, (row,)), lambda _i: (0,))
    assert (host.input_ids, host.position_ids, host.num_contexts) == ((18,), (8,), 0)


def test_the_cursor_decides_and_a_stale_batch_index_is_not_read():
    request = context(1, prompt_len=9, cursor=8)
    request.py_batch_idx = 3  # where a sample of its earlier life lay
    (row,) = promote_final_contexts(batch(context_span(request, 1)), graphs_enabled=True)
    assert token_source(row) is TokenSource.HOST


def test_a_prompt_of_one_token_is_promoted_whole():
    assert promote_final_contexts(batch(context_span(context(1, 1), 1)), graphs_enabled=True)


def test_one_longer_context_keeps_all_of_them_back():
    final, longer = context_span(context(1, 9, 8), 1), context_span(context(2, 5), 5)
    assert promote_final_contexts(batch(longer, final), graphs_enabled=True) == ()


def test_a_one_row_chunk_in_the_middle_of_a_prompt_is_not_final():
    assert promote_final_contexts(batch(context_span(context(1, 9, 4), 1)), graphs_enabled=True) == ()


def test_every_gate_must_be_open():
    scheduled = batch(context_span(context(1, 1), 1))
    assert promote_final_contexts(scheduled, graphs_enabled=False) == ()
    assert promote_final_contexts(scheduled, graphs_enabled=True, draft_len=2) == ()
    assert promote_final_contexts(batch(), graphs_enabled=True) == ()


def test_a_span_that_no_longer_starts_at_the_cursor_is_not_promoted():
    request = context(1, 9, 8)
    span = context_span(request, 1)._replace(start=7)
    assert promote_final_contexts(batch(span), graphs_enabled=True) == ()


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5)), max_size=4))
def test_all_or_nothing(shapes):
    spans = []
    for request_id, (length, done) in enumerate(shapes):
        request = context(request_id, length, min(done, length - 1))
        spans.append(context_span(request, request.context_remaining_length))
    promoted = promote_final_contexts(batch(*spans), graphs_enabled=True)
    is_all_final = bool(spans) and all(span.num_rows == 1 for span in spans)
    assert [row.request_id for row in promoted] == ([span.request_id for span in spans] if is_all_final else [])

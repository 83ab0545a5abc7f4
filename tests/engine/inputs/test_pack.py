"""Packing lays every span out once, in one order, and says where each token comes from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.inputs.host_inputs import TokenSource
from engine.inputs.pack import pack
from engine.inputs.prepare import attention_step
from engine.llm_request import LlmRequest, RequestSpec, RequestState
from engine.scheduled import (
    BudgetUse,
    PaddedBatch,
    RowKind,
    ScheduledRequests,
    Span,
    context_span,
    generation_span,
    verify_span,
)


def batch_of(*spans: Span) -> PaddedBatch:
    contexts = tuple(s for s in spans if s.kind is RowKind.CONTEXT)
    others = tuple(s for s in spans if s.kind in (RowKind.GENERATION, RowKind.EXTEND))
    budget = BudgetUse(sum(s.num_rows for s in spans), 512, len(spans), 8)
    draft_len = max((len(s.draft_tokens) for s in others), default=0)
    return PaddedBatch(ScheduledRequests(contexts, others, (), (), budget, draft_len=draft_len), spans)


def context(request_id: int, prompt: list[int], position: int, chunk: int) -> Span:
    request = LlmRequest(RequestSpec(request_id, tuple(prompt), SamplingParams()))
    request.context_current_position = position
    request.py_seq_slot = request_id
    return context_span(request, chunk)


def generation(request_id: int, tokens: list[int], *, slot: int, on_device: bool) -> Span:
    request = LlmRequest(RequestSpec(request_id, tuple(tokens[:-1]), SamplingParams()))
    request.generated.append(tokens[-1])
    request.context_current_position = len(tokens) - 1
    request.state = RequestState.GENERATION_IN_PROGRESS
    request.py_seq_slot = slot
    request.py_batch_idx = slot if on_device else None
    return generation_span(request)


def verify(request_id: int, tokens: list[int], draft_len: int, *, in_flight: int = 0, max_new: int = 40) -> Span:
    """A verify row of a request with a two-token prompt. in_flight: samples on the device, at best."""
    guess = tuple(range(100, 130))
    params = SamplingParams(max_tokens=max_new)
    request = LlmRequest(RequestSpec(request_id, tuple(tokens[:2]), params, draft_tokens=guess))
    request.generated.extend(tokens[2:])
    request.context_current_position = 2
    request.state = RequestState.GENERATION_IN_PROGRESS
    request.py_seq_slot = request_id
    request.py_batch_idx = request_id if in_flight else None
    request.num_in_flight = in_flight
    return verify_span(request, draft_len)


def padding(slot: int, draft_len: int = 0) -> Span:
    params = SamplingParams(max_tokens=1 + draft_len)
    request = LlmRequest(RequestSpec(2**64 - 1 - draft_len, (1,), params, is_dummy=True))
    request.py_seq_slot = slot
    return Span(request, RowKind.PADDING, 0, 1 + draft_len, 1 + draft_len)


def test_a_middle_chunk_has_its_own_tokens_and_positions_and_no_logit_row() -> None:
    host = pack(batch_of(context(3, [10, 11, 12, 13, 14], 2, 2)), lambda _id: (7,))
    assert host.input_ids == (12, 13)
    assert host.position_ids == (2, 3)
    assert host.gather_ids == ()
    assert host.num_cached_tokens_per_seq == (2,)
    assert host.sequence_lengths == (2,)


def test_the_last_chunk_wants_the_logits_of_its_last_row_only() -> None:
    host = pack(batch_of(context(3, [10, 11, 12], 0, 3)), lambda _id: (7,))
    assert host.gather_ids == (2,)
    assert host.seq_slots == (3,)


def test_three_sources_of_tokens_form_three_segments() -> None:
    spans = (
        context(0, [5, 6, 7], 0, 3),
        generation(1, [8, 9], slot=4, on_device=False),
        generation(2, [1, 2, 3], slot=5, on_device=True),
        padding(8),
        padding(8),
    )
    host = pack(batch_of(*spans), lambda request_id: (request_id % 100,))
    host.check()
    assert host.input_ids == (5, 6, 7, 9)
    assert host.previous_batch_indices == (5,)
    assert host.position_ids == (0, 1, 2, 1, 2, 0, 0)
    assert [(s.source, s.start, s.end) for s in host.segments] == [
        (TokenSource.HOST, 0, 4),
        (TokenSource.DEVICE, 4, 5),
        (TokenSource.ZERO, 5, 7),
    ]
    assert host.gather_ids == (2, 3, 4, 5, 6)
    assert host.seq_slots == (0, 4, 5, 8, 8)
    assert host.num_contexts == 1


def test_a_dummy_is_known_by_its_flag_even_when_it_carries_a_batch_index() -> None:
    span = padding(8)
    span.request.py_batch_idx = 8  # a dummy that was used before looks like a running request
    host = pack(batch_of(generation(2, [1, 2, 3], slot=5, on_device=True), span), lambda _id: (0,))
    assert host.previous_batch_indices == (5,)
    assert host.segments[2].source is TokenSource.ZERO
    assert (host.segments[2].start, host.segments[2].end) == (1, 2)


def test_rows_out_of_order_are_an_error_of_ours() -> None:
    spans = (generation(2, [1, 2], slot=5, on_device=True), generation(1, [8, 9], slot=4, on_device=False))
    with pytest.raises(AssertionError, match="out of order"):
        pack(batch_of(*spans), lambda _id: (0,))


def test_a_verify_row_that_the_host_knows_runs_the_newest_token_and_the_drafts_behind_it() -> None:
    host = pack(batch_of(context(0, [1, 2, 3], 0, 3), verify(1, [5, 6, 7, 8], 2), padding(9, 2)), lambda _id: (0,))
    host.check()
    assert host.input_ids == (1, 2, 3, 8, 102, 103)
    assert host.position_ids == (0, 1, 2, 3, 4, 5, 0, 1, 2)
    assert host.gather_ids == (2, 3, 4, 5, 6, 7, 8)
    assert host.seq_slots == (0, 1, 1, 1, 9, 9, 9)
    assert host.num_verify_rows == 6
    assert host.drafts is not None
    assert host.drafts.previous_draft_lens == ()
    assert host.segments[1].start == host.segments[1].end == 6


def test_a_verify_row_behind_unread_samples_is_laid_out_for_the_best_case() -> None:
    unread = verify(1, [5, 6, 7], 2, in_flight=3)
    host = pack(batch_of(verify(0, [5, 6, 7], 2), unread, padding(9, 2)), lambda _id: (0,))
    host.check()
    assert host.input_ids == (7, 101, 102), "of the second request the host knows no token"
    assert host.position_ids[3:6] == (5, 6, 7), "as if both drafts had been accepted"
    assert host.previous_batch_indices == (1,)
    assert host.drafts is not None
    assert host.drafts.previous_draft_lens == (2,)
    assert host.first_device_sequence == 1


def test_a_row_whose_sample_was_read_is_derived_among_those_that_were_not_if_it_is_still_there() -> None:
    read, unread = verify(1, [5, 6, 7], 2), verify(2, [5, 6, 7], 2, in_flight=1)
    read.request.py_batch_idx = 1
    assert pack(batch_of(read), lambda _id: (0,)).previous_batch_indices == ()
    host = pack(batch_of(read, unread), lambda _id: (0,))
    host.check()
    assert (host.input_ids, host.previous_batch_indices) == ((), (1, 2))
    assert host.drafts is not None
    assert host.drafts.previous_draft_lens == (0, 0)


def test_a_plain_row_behind_an_unread_verify_row_is_corrected_too() -> None:
    span = verify(1, [5, 6, 7], 2, in_flight=3)
    host = pack(batch_of(generation_span(span.request)), lambda _id: (0,))
    host.check()
    assert (host.draft_len, host.position_ids, host.num_verify_rows) == (0, (5,), 0)
    assert host.drafts is not None
    assert host.drafts.previous_draft_lens == (2,)
    plain = verify(1, [5, 6, 7], 2, in_flight=1)
    assert pack(batch_of(generation_span(plain.request)), lambda _id: (0,)).drafts is None


def test_rows_behind_a_requests_last_position_lie_on_it_and_have_no_kv() -> None:
    span = verify(1, [5, 6, 7], 4, max_new=3)  # five tokens in all: positions 0 to 4, and the last is never fed back
    host = pack(batch_of(span), lambda _id: (0,))
    assert host.position_ids == (2, 3, 4, 4, 4)
    assert host.drafts is not None
    assert host.drafts.kv_limits == (4,)
    assert attention_step(host).kv_lens == (4,)


@st.composite
def batches(draw: st.DrawFn) -> PaddedBatch:
    spans: list[Span] = []
    for request_id in range(draw(st.integers(0, 4))):
        prompt = draw(st.lists(st.integers(0, 99), min_size=1, max_size=20))
        position = draw(st.integers(0, len(prompt) - 1))
        spans.append(context(request_id, prompt, position, draw(st.integers(1, len(prompt) - position))))
    draft_len = draw(st.integers(0, 3))
    for on_device in (False, True):
        for _ in range(draw(st.integers(0, 3))):
            tokens = draw(st.lists(st.integers(0, 99), min_size=3, max_size=20))
            if draft_len:
                in_flight = draw(st.integers(1, 1 + draft_len)) if on_device else 0
                max_new = len(tokens) - 2 + draw(st.integers(1, 6))
                spans.append(verify(len(spans), tokens, draft_len, in_flight=in_flight, max_new=max_new))
            else:
                spans.append(generation(len(spans), tokens, slot=len(spans), on_device=on_device))
    spans.extend(padding(30, draft_len) for _ in range(draw(st.integers(0, 3))))
    return batch_of(*spans)


@given(batches())
def test_unpacking_the_layout_gives_the_spans_back(batch: PaddedBatch) -> None:
    host = pack(batch, lambda request_id: (request_id % 100,))
    host.check()
    row = 0
    for index, span in enumerate(batch.spans):
        positions = host.position_ids[row : row + span.num_rows]
        limit = span.request.max_total_tokens - 1
        on_device = host.segments[1].start <= row < host.segments[1].end
        assert positions == tuple(p if on_device else min(p, limit) for p in range(span.start, span.end))
        if host.segments[0].start <= row < host.segments[0].end:
            known = span.request.tokens[span.start : span.end - len(span.draft_tokens)]
            assert list(host.input_ids[row : row + span.num_rows]) == known + list(span.draft_tokens)
        if on_device and span.draft_tokens:
            assert span.request.num_in_flight > 0
        assert host.request_ids[index] == span.request_id
        row += span.num_rows
    assert row == host.num_tokens
    assert len(host.gather_ids) == sum(span.num_logit_rows for span in batch.spans)

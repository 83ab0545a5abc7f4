"""Packing lays every span out once, in one order, and says where each token comes from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.inputs.host_inputs import TokenSource
from engine.inputs.pack import pack
from engine.llm_request import LlmRequest, RequestSpec, RequestState
from engine.scheduled import BudgetUse, PaddedBatch, RowKind, ScheduledRequests, Span, context_span, generation_span


def batch_of(*spans: Span) -> PaddedBatch:
    contexts = tuple(s for s in spans if s.kind is RowKind.CONTEXT)
    others = tuple(s for s in spans if s.kind is RowKind.GENERATION)
    budget = BudgetUse(sum(s.num_rows for s in spans), 512, len(spans), 8)
    return PaddedBatch(ScheduledRequests(contexts, others, (), (), budget), spans)


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


def padding(slot: int) -> Span:
    request = LlmRequest(RequestSpec(2**64 - 1, (1,), SamplingParams(), is_dummy=True))
    request.py_seq_slot = slot
    return Span(request, RowKind.PADDING, 0, 1, 1)


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


@st.composite
def batches(draw: st.DrawFn) -> PaddedBatch:
    spans: list[Span] = []
    for request_id in range(draw(st.integers(0, 4))):
        prompt = draw(st.lists(st.integers(0, 99), min_size=1, max_size=20))
        position = draw(st.integers(0, len(prompt) - 1))
        spans.append(context(request_id, prompt, position, draw(st.integers(1, len(prompt) - position))))
    for on_device in (False, True):
        for _ in range(draw(st.integers(0, 3))):
            tokens = draw(st.lists(st.integers(0, 99), min_size=2, max_size=20))
            spans.append(generation(len(spans), tokens, slot=len(spans), on_device=on_device))
    spans.extend(padding(30) for _ in range(draw(st.integers(0, 3))))
    return batch_of(*spans)


@given(batches())
def test_unpacking_the_layout_gives_the_spans_back(batch: PaddedBatch) -> None:
    host = pack(batch, lambda request_id: (request_id % 100,))
    host.check()
    row = 0
    for index, span in enumerate(batch.spans):
        positions = host.position_ids[row : row + span.num_rows]
        assert positions == tuple(range(span.start, span.end))
        if host.segments[0].start <= row < host.segments[0].end:
            assert list(host.input_ids[row : row + span.num_rows]) == span.request.tokens[span.start : span.end]
        assert host.request_ids[index] == span.request_id
        row += span.num_rows
    assert row == host.num_tokens
    assert len(host.gather_ids) == sum(span.num_logit_rows for span in batch.spans)

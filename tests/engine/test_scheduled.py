import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduled import (
    BudgetUse,
    PaddedBatch,
    RowKind,
    ScheduledRequests,
    context_span,
    generation_span,
    generation_spans,
    verify_span,
)
from tests.engine.live_requests import running, waiting


def test_a_chunk_inside_the_prompt_wants_no_logits():
    span = context_span(waiting(3, prompt_len=20, position=8), 8)
    assert (span.request_id, span.kind, span.start, span.end) == (3, RowKind.CONTEXT, 8, 16)
    assert (span.num_rows, span.num_logit_rows, span.num_sequences) == (8, 0, 1)


def test_the_last_chunk_wants_one_row_of_logits():
    span = context_span(waiting(3, prompt_len=20, position=8), 12)
    assert (span.end, span.num_logit_rows) == (20, 1)


def test_a_decode_row_stands_at_the_position_of_the_newest_token():
    span = generation_span(running(4, prompt_len=20, generated=3))
    assert (span.kind, span.start, span.num_rows, span.num_logit_rows) == (RowKind.GENERATION, 22, 1, 1)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 1)), max_size=6))
def test_decode_rows_laid_out_together_are_those_of_each_and_stay_so(requests):
    batch = [running(i, generated=generated) for i, (generated, _) in enumerate(requests)]
    for request, (_, num_in_flight) in zip(batch, requests, strict=True):
        request.num_in_flight = num_in_flight
    spans, expected = generation_spans(batch), tuple(generation_span(request) for request in batch)
    for request in batch:
        request.generated.append(5)
    assert spans == expected
    assert tuple(spans) == spans[:] == expected
    assert [spans[at] for at in range(len(spans))] == list(expected)
    assert (hash(spans), repr(spans)) == (hash(expected), repr(expected))
    assert ScheduledRequests((), spans, (), (), BudgetUse(0, 9, 0, 9)).generating == tuple(batch)


def test_a_verify_row_needs_no_kv_behind_the_last_position_of_its_request():
    request = running(4, prompt_len=20, generated=3, max_tokens=6, draft_tokens=(1, 2, 3, 4, 5, 6))
    span = verify_span(request, 5)
    assert (span.start, span.end, span.kv_end) == (22, 28, 25), "26 tokens in all, and the last is never fed back"
    assert span.draft_tokens == (4, 5, 6, 0, 0)
    assert verify_span(request, 2).kv_end == 25
    assert generation_span(request).kv_end == 23


@settings(deadline=None)
@given(st.integers(1, 50), st.data())
def test_chunks_cover_the_prompt_once_and_the_first_decode_row_follows(prompt_len, data):
    request = waiting(0, prompt_len=prompt_len)
    covered = []
    while request.context_remaining_length:
        size = data.draw(st.integers(1, request.context_remaining_length))
        span = context_span(request, size)
        covered.extend(range(span.start, span.end))
        request.context_current_position = span.end
        assert span.num_logit_rows == (not request.context_remaining_length)
    assert covered == list(range(prompt_len))
    assert generation_span(running(0, prompt_len=prompt_len)).start == prompt_len


def test_a_step_counts_its_rows_and_requests_in_row_order():
    contexts = (context_span(waiting(1, prompt_len=20), 8), context_span(waiting(2, prompt_len=5), 5))
    generations = (generation_span(running(3)),)
    scheduled = ScheduledRequests(contexts, generations, (), (), BudgetUse(14, 32, 3, 4))
    assert scheduled.spans == contexts + generations
    assert (scheduled.num_tokens, scheduled.num_requests) == (14, 3)
    padded = PaddedBatch(scheduled, scheduled.spans + generations, num_padding=1)
    assert padded.num_tokens == 15


def test_records_of_a_step_cannot_be_changed():
    span = generation_span(running(3))
    with pytest.raises(AttributeError):
        span.num_rows = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        BudgetUse(1, 2, 3, 4).num_tokens = 5


def test_row_kinds_are_the_letters_that_the_lab_draws():
    assert "".join(RowKind) == "CEGP"

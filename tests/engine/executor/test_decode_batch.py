"""A repeating batch counts what the requests would say if they were asked."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.executor.decode_batch import DecodeBatch
from engine.executor.decode_rows import look_at
from engine.kv_cache.manager import KVCacheManager
from engine.scheduled import BudgetUse, RowKind, ScheduledRequests, generation_span
from tests.engine.executor.test_live import live
from tests.engine.live_requests import running

NO_EOS = np.zeros(16, dtype=bool)


def batch_of(generated, *, tokens_per_block=4, prompt_len=3, max_tokens=50):
    """A batch whose first step has just been launched, and read."""
    kv = KVCacheManager(num_blocks=200, tokens_per_block=tokens_per_block, max_seq_len=100)
    requests = [
        running(i, prompt_len=prompt_len, generated=count, max_tokens=max_tokens) for i, count in enumerate(generated)
    ]
    for slot, request in enumerate(requests):
        request.py_seq_slot = slot
        kv.reserve(request.request_id, request.num_tokens)
    spans = tuple(generation_span(request) for request in requests)
    rows = look_at(requests, {request.request_id: live(request) for request in requests}, frozenset())
    for request in requests:
        request.num_in_flight = 1
    scheduled = ScheduledRequests((), spans, (), (), BudgetUse(len(spans), 99, len(spans), 99))
    return DecodeBatch(scheduled, rows, kv), requests, kv


def launch(batch, requests, kv):
    """What the loop does for one step."""
    assert batch.choose_growth(kv.num_free_blocks)
    for span in batch.spans_to_grow():
        assert 1 <= len(kv.reserve(span.request_id, span.end)) <= 2, "a row that is said to grow needs a block"
    record = batch.launch(kv.num_free_blocks)
    ends = [(span.request_id, span.end) for span in record.generation_requests]
    assert not kv.lacking(ends), "a row without a block for its token"
    for request in requests:
        request.num_in_flight += 1
    return record


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 12), st.integers(1, 5))
def test_every_step_is_laid_out_as_the_requests_stand(generated, num_steps, tokens_per_block):
    batch, requests, kv = batch_of(generated, tokens_per_block=tokens_per_block)
    for request in requests:  # the step before the batch is read
        request.generated.append(7)
        request.num_in_flight -= 1
    for _ in range(num_steps):
        expected = tuple(generation_span(request) for request in requests)
        record = launch(batch, requests, kv)
        assert record.generation_requests == expected
        assert record.spans == expected
        assert record.generating == tuple(requests)
        assert record.num_tokens == len(requests)
        batch.check(kv)
        assert batch.rows.take(np.full(len(requests), 5), NO_EOS) == []
        assert all(request.generated[-1] == 5 for request in requests)
        assert all(request.num_in_flight == 0 for request in requests)


def test_a_record_stays_true_while_its_requests_go_on():
    batch, requests, kv = batch_of([1, 2])
    for request in requests:
        request.generated.append(7)
        request.num_in_flight -= 1
    record = launch(batch, requests, kv)
    starts = [span.start for span in record.generation_requests]
    batch.rows.take(np.full(2, 5), NO_EOS)
    launch(batch, requests, kv)
    assert [span.start for span in record.generation_requests] == starts
    assert {span.kind for span in record.spans} == {RowKind.GENERATION}
    assert record.generation_requests[0:1] == (record.spans[0],)


def test_nothing_runs_behind_the_last_token_of_a_request():
    batch, requests, kv = batch_of([1, 3], max_tokens=6)
    assert batch.can_repeat
    launch(batch, requests, kv)
    assert batch.can_repeat
    launch(batch, requests, kv)
    assert not batch.can_repeat, "the second request has all its tokens on the way"
    assert batch.rows.ending() == [1]


def test_rows_that_came_together_grow_apart_and_in_few_steps_where_blocks_are_plenty():
    batch, requests, kv = batch_of([1] * 24, tokens_per_block=16, prompt_len=16, max_tokens=80)
    grown = []
    while batch.can_repeat:
        assert batch.choose_growth(10**6)
        spans = batch.spans_to_grow()
        grown.append(len(spans))
        for span in spans:
            kv.reserve(span.request_id, span.end)
        batch.launch(10**6)
        for request in requests:
            request.num_in_flight += 1
        batch.check(kv)
    assert max(grown) <= 8, "a third of them, as there are three times before the first is full"
    assert sum(count > 0 for count in grown) <= len(grown) / 4 + 1


def test_no_row_gets_a_block_that_it_will_not_need():
    batch, requests, kv = batch_of([1] * 4, tokens_per_block=4, prompt_len=4, max_tokens=7)
    while batch.can_repeat:
        launch(batch, requests, kv)
    # The newest token is never fed: positions 0 .. 9 of 11 tokens.
    assert [kv.num_reserved_blocks(request.request_id) for request in requests] == [3] * 4


def test_with_few_blocks_only_full_rows_grow_and_none_when_they_do_not_suffice():
    batch, _requests, _kv = batch_of([2] * 4, tokens_per_block=4, prompt_len=4)
    assert batch.choose_growth(7)
    assert batch.spans_to_grow() == ()
    batch._room[:] = [0, 3, 0, 2]
    assert batch.choose_growth(2)
    assert [span.request_id for span in batch.spans_to_grow()] == [0, 2]
    assert not batch.choose_growth(1)

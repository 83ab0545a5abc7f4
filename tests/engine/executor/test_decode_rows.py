"""Rows that are cut out of those of the step before say what their requests would."""

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.executor.decode_rows import edited, kept_runs, look_at
from engine.llm_request import RequestState
from engine.scheduled import generation_span
from tests.engine.executor.test_live import live
from tests.engine.live_requests import running

EOS, OTHER, VOCAB = 9, 3, 16
TABLE = np.zeros(VOCAB, dtype=bool)
TABLE[EOS] = True
KINDS = ({}, {"stop": ("x",)}, {"stop_token_ids": (EOS,)}, {"stop_token_ids": (OTHER,)}, {"logprobs": 2})


def live_of(request, **params):
    """A live request with these parameters, in its slot."""
    request.spec = type(request.spec)(
        request.request_id,
        request.spec.prompt_token_ids,
        type(request.spec.params)(max_tokens=request.max_new_tokens, **params),
    )
    request.py_seq_slot = request.request_id + 100
    return live(request, **params)


def world(kinds, **more):
    lives = {i: live_of(running(i, **more), **kind) for i, kind in enumerate(kinds)}
    look = functools.partial(look_at, live=lives, eos_ids=frozenset({EOS}))
    return [one.request for one in lives.values()], lives, look


def test_a_row_knows_its_slot_its_place_and_how_many_may_follow():
    requests, lives, look = world([{}, {}], prompt_len=5, generated=2, max_tokens=6)
    requests[1].num_in_flight = 1
    rows = look(requests)
    assert rows.slots.tolist() == [100, 101]
    assert rows.starts.tolist() == [generation_span(request).start for request in requests] == [6, 7]
    assert rows.num_left.tolist() == [3, 2], "besides this one"
    rows.check(lives, frozenset({EOS}))
    moved = rows.moved()
    assert moved.requests is rows.requests
    assert (moved.starts.tolist(), rows.starts.tolist()) == ([7, 8], [6, 7])
    with pytest.raises(AssertionError, match="not what its request says"):
        moved.check(lives, frozenset({EOS}))


ids = st.lists(st.integers(0, 30), unique=True, max_size=20)


@given(ids, ids, st.booleans())
def test_edited_rows_are_those_that_a_look_at_every_request_gives(before, now, is_sorted):
    requests, _, look = world([KINDS[i % len(KINDS)] for i in range(31)])
    first, second = (tuple([requests[i] for i in (sorted(order) if is_sorted else order)]) for order in (before, now))
    looked_at = []
    rows = edited(look(first), second, lambda some: (looked_at.extend(some), look(some))[1])
    expected = look(second)
    assert (rows.requests, rows.appends) == (expected.requests, expected.appends)
    assert np.array_equal(rows.facts, expected.facts)
    assert set(second) - set(first) <= set(looked_at)
    if is_sorted:
        assert looked_at == [request for request in second if request not in first], "nobody else is asked"


@given(ids, ids)
def test_runs_hold_what_stands_in_both_once_and_in_order(before, now):
    requests, _, _ = world([{}] * 31)
    first, second = (tuple([requests[i] for i in order]) for order in (before, now))
    runs = list(kept_runs(first, second))
    kept = [request for i, j, count in runs for request in second[j : j + count]]
    assert kept == [request for i, j, count in runs for request in first[i : i + count]]
    assert all(count > 0 for _, _, count in runs)
    ends = [(i + count, j + count) for i, j, count in runs]
    assert all(i <= k and j <= m for (i, j), (k, m, _) in zip(ends, runs[1:], strict=False))
    if before == sorted(before) and now == sorted(now):
        assert kept == [request for request in second if request in first]


def test_rows_of_the_same_requests_are_not_copied():
    requests, _, look = world([{}] * 5)
    rows = look(requests)
    assert edited(rows, tuple(requests), look) is rows
    assert edited(rows, (), look).facts.shape == (5, 0)
    assert rows.without(running(77)) is rows


@given(st.integers(0, 6), st.integers(1, 7))
def test_a_row_that_is_dropped_leaves_the_others_as_they_are(at, count):
    requests, _, look = world([KINDS[i % len(KINDS)] for i in range(count)])
    gone = requests[at % count]
    rows, rest = look(requests).without(gone), [request for request in requests if request is not gone]
    assert rows.requests == tuple(rest)
    assert np.array_equal(rows.facts, look(rest).facts)
    stranger = running(55)
    stranger.py_seq_slot = gone.py_seq_slot
    assert rows.without(stranger) is rows
    assert look(requests).without(stranger).requests == tuple(requests), "its slot was another's before"


def test_rows_that_may_end_are_left_to_whoever_decides():
    requests, _, look = world(KINDS, generated=1)
    rows = look(requests)
    for request in requests:
        request.num_in_flight = 2
    assert rows.take(np.array([5, 5, EOS, 5, 5]), TABLE) == [1, 2, 3, 4]
    assert [len(request.generated) for request in requests] == [2, 1, 1, 1, 1], "their tokens are not appended"
    assert rows.take(np.array([EOS, 5, 6, 5, 5]), TABLE) == [1, 3, 4], "what ends one is nothing to another"
    assert requests[2].generated[-1] == 6
    assert [request.num_in_flight for request in requests] == [0] * 5


def test_the_last_token_of_a_request_is_looked_at_and_nothing_follows_its_row():
    requests, _, look = world([{}, {}], generated=3, max_tokens=5)
    requests[1].num_in_flight = 1
    rows = look(requests)
    assert rows.ending() == [1]
    assert rows.take(np.array([5, 5]), TABLE) == [1]


def test_a_launch_is_noted_with_every_request():
    requests, _, look = world([{}, {}, {}], generated=3, max_tokens=5, on_device=False)
    requests[2].py_batch_idx, requests[2].num_in_flight = 102, 1
    look(requests).expect_tokens()
    assert [request.num_in_flight for request in requests] == [1, 1, 2]
    assert [request.py_batch_idx for request in requests] == [100, 101, 102]
    going, ending = RequestState.GENERATION_IN_PROGRESS, RequestState.GENERATION_TO_COMPLETE
    assert [request.state for request in requests] == [going, going, ending]


@given(st.integers(1, 8), st.integers(1, 30))
def test_rows_say_when_they_need_a_block_and_when_they_fill_one(tokens_per_block, generated):
    requests, _, look = world([{}], prompt_len=3, generated=generated, max_tokens=50)
    start = generation_span(requests[0]).start
    reserved = np.zeros(200, dtype=np.int64)
    for num_tokens in (start, start + 1):
        reserved[100] = num_tokens
        assert look(requests).lacking(reserved) == ([0] if start + 1 > num_tokens else [])
    assert look(requests).filling(tokens_per_block) == ([] if (start + 1) % tokens_per_block else [0])

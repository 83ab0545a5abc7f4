"""The key: rows by one formula, order by size, one text."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cuda_graphs.key import KeyType, SampleMode, capture_keys, make_key

sizes = st.integers(1, 64)
keys = st.builds(KeyType, sizes, st.integers(0, 5), st.sampled_from(SampleMode), st.integers(1, 4))


@given(keys)
def test_rows_are_requests_times_beams_times_tokens(key):
    assert key.num_tokens() == sum(1 + key.draft_len for _ in range(key.batch_size) for _ in range(key.beam_width))


@given(keys, keys)
def test_keys_are_equal_exactly_when_every_field_is(one, other):
    assert (one == other) == (dataclasses.astuple(one) == dataclasses.astuple(other))
    assert len({one, other}) == (1 if one == other else 2)


@given(st.lists(keys))
def test_keys_sort_by_batch_size_first(unsorted):
    assert [key.batch_size for key in sorted(unsorted)] == sorted(key.batch_size for key in unsorted)


def test_the_constructor_takes_one_beam_and_the_text_is_the_labs():
    key = make_key(padded_batch_size=4, draft_len=0, sample_mode=SampleMode.GREEDY)
    assert key == KeyType(4, 0, SampleMode.GREEDY, beam_width=1)
    assert str(key) == "(batch 4, draft 0, greedy)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        key.batch_size = 8


def test_the_keys_of_warm_up_are_the_largest_first_and_hold_the_wanted_samplers():
    both = capture_keys((1, 4), ("greedy", "full"))
    assert [str(key) for key in both] == [
        "(batch 4, draft 0, full)",
        "(batch 4, draft 0, greedy)",
        "(batch 1, draft 0, full)",
        "(batch 1, draft 0, greedy)",
    ]
    assert capture_keys((2,), ("greedy",)) == (KeyType(2, 0, SampleMode.GREEDY),)
    assert capture_keys((), ("greedy",)) == ()


@given(
    st.dictionaries(st.integers(1, 5), st.lists(sizes, max_size=4, unique=True), max_size=3),
    st.lists(sizes, max_size=4, unique=True),
)
def test_every_draft_length_has_its_keys_and_no_key_has_more_rows_than_one_before(drafts, plain):
    keys = capture_keys(plain, ("greedy", "full"), draft_buckets=drafts | {0: plain})
    rows = [key.num_tokens() for key in keys]
    assert rows == sorted(rows, reverse=True), "the first graph sizes the pool"
    expected = {(size, draft_len) for draft_len, of in (drafts | {0: plain}).items() for size in of}
    assert {(key.batch_size, key.draft_len) for key in keys} == expected
    assert len(keys) == len(set(keys)) == 2 * len(expected)

"""Buckets: the default lists, and the cut to what a step can hold."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import CudaGraphConfig
from engine.cuda_graphs.buckets import default_batch_sizes, resolve_batch_sizes


@pytest.mark.parametrize(
    ("limit", "padding", "expected"),
    [
        (1, True, (1,)),
        (3, True, (1, 2, 3)),
        (8, True, (1, 2, 4, 8)),
        (20, True, (1, 2, 4, 8, 16, 20)),
        (200, True, (1, 2, 4, *range(8, 129, 8), 192, 200)),
        (3, False, (1, 2, 3)),
        (40, False, (*range(1, 32), 32, 40)),
        (700, False, (*range(1, 32), 32, 64, 128, 256, 512, 700)),
    ],
)
def test_the_default_list(limit, padding, expected):
    assert default_batch_sizes(limit, padding=padding) == expected


@given(st.integers(1, 3000), st.booleans())
def test_every_list_ascends_without_duplicates_and_ends_at_the_limit(limit, padding):
    sizes = default_batch_sizes(limit, padding=padding)
    assert list(sizes) == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, limit)


@given(st.integers(1, 3000))
def test_padding_never_adds_more_than_the_batch_or_sixty_four_rows(limit):
    sizes = default_batch_sizes(limit, padding=True)
    for small, large in itertools.pairwise(sizes):
        assert large - small - 1 < max(small, 4)
        assert large - small <= 64


def test_disabled_graphs_have_no_buckets():
    assert resolve_batch_sizes(CudaGraphConfig(enabled=False), max_batch_size=8, max_num_tokens=64) == ()


def test_configured_sizes_come_through():
    config = CudaGraphConfig(batch_sizes=(2, 4))
    assert resolve_batch_sizes(config, max_batch_size=8, max_num_tokens=64) == (2, 4)


@pytest.mark.parametrize(("padding", "expected"), [(True, (1, 2, 4, 5)), (False, (1, 2, 4))])
def test_the_first_size_that_does_not_fit_becomes_the_cap_when_padding(padding, expected):
    config = CudaGraphConfig(batch_sizes=(1, 2, 4, 8, 16), enable_padding=padding)
    sizes = resolve_batch_sizes(config, max_batch_size=16, max_num_tokens=20, tokens_per_request=4)
    assert sizes == expected


@given(
    st.none() | st.sets(st.integers(1, 40), min_size=1).map(lambda sizes: tuple(sorted(sizes))),
    st.integers(1, 40),
    st.integers(1, 200),
    st.integers(1, 6),
    st.booleans(),
)
def test_buckets_fit_a_step_and_only_the_cap_may_be_new(sizes, max_batch_size, max_num_tokens, rows, padding):
    config = CudaGraphConfig(batch_sizes=sizes, enable_padding=padding)
    got = resolve_batch_sizes(
        config, max_batch_size=max_batch_size, max_num_tokens=max_num_tokens, tokens_per_request=rows
    )
    cap = min(max_batch_size, max_num_tokens // rows)
    offered = sizes or default_batch_sizes(max_batch_size, padding=padding)
    assert list(got) == sorted(set(got))
    assert all(0 < size <= cap for size in got)
    assert {size for size in offered if size <= cap} <= set(got)
    assert set(got) - set(offered) <= {cap}
    if padding and max(offered) >= cap > 0:
        assert got[-1] == cap, "the largest batch that a step can hold has a bucket"

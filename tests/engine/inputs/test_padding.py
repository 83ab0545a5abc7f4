"""Request padding fills a bucket exactly or not at all."""

from hypothesis import given
from hypothesis import strategies as st

from engine.inputs.padding import num_padding_requests, prefill_bucket, round_up_to_bucket

BUCKETS = st.lists(st.integers(1, 64), min_size=1, max_size=8, unique=True).map(lambda sizes: tuple(sorted(sizes)))


@given(st.integers(1, 80), BUCKETS)
def test_rounding_up_finds_the_smallest_bucket_that_holds_the_batch(
    num_requests: int, buckets: tuple[int, ...]
) -> None:
    fitting = [size for size in buckets if size >= num_requests]
    assert round_up_to_bucket(num_requests, buckets) == (min(fitting) if fitting else None)


@given(st.integers(1, 80), st.integers(0, 2), BUCKETS, st.booleans(), st.booleans())
def test_padding_reaches_a_bucket_or_is_zero(
    num_requests: int, num_contexts: int, buckets: tuple[int, ...], enabled: bool, available: bool
) -> None:
    count = num_padding_requests(
        num_requests=num_requests,
        num_contexts=num_contexts,
        buckets=buckets,
        enabled=enabled,
        dummy_available=available,
    )
    if count:
        assert num_requests + count in buckets
        assert enabled
        assert available
        assert num_contexts == 0
    elif enabled and available and not num_contexts:
        assert num_requests in buckets or num_requests > buckets[-1]


def test_seven_becomes_eight() -> None:
    count = num_padding_requests(
        num_requests=7, num_contexts=0, buckets=(1, 2, 4, 8), enabled=True, dummy_available=True
    )
    assert count == 1


@given(st.integers(1, 80), st.integers(0, 2), BUCKETS)
def test_rows_are_padded_to_the_smallest_prefill_bucket_when_prompts_are_among_them(
    num_tokens: int, num_contexts: int, buckets: tuple[int, ...]
) -> None:
    bucket = prefill_bucket(num_tokens=num_tokens, num_contexts=num_contexts, buckets=buckets)
    fitting = [size for size in buckets if size >= num_tokens]
    assert bucket == (min(fitting) if fitting and num_contexts else None)


def test_without_prefill_buckets_no_step_is_padded_with_rows() -> None:
    assert prefill_bucket(num_tokens=1, num_contexts=1, buckets=()) is None

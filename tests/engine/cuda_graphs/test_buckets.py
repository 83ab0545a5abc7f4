"""Buckets: the default lists, the cut to what a step can hold, and the doctor that compares the two."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import CudaGraphConfig, EngineConfig, SchedulerConfig
from engine.cuda_graphs.buckets import (
    FindingKind,
    bucket_findings,
    buckets_of,
    default_batch_sizes,
    resolve_batch_sizes,
    resolve_buckets,
    runs_text,
)
from engine.cuda_graphs.key import SampleMode, make_key
from engine.cuda_graphs.select import GraphFacts, select_graph


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


def test_the_default_lists_are_those_of_tensorrt_llm_up_to_its_default_limit():
    with_padding = (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128)
    without = (*range(1, 32), 32, 64, 128)
    assert default_batch_sizes(128, padding=True) == with_padding
    assert default_batch_sizes(128, padding=False) == without
    assert default_batch_sizes(512, padding=True) == (*with_padding, 192, 256, 320, 384, 448, 512)
    assert default_batch_sizes(512, padding=False) == (*without, 256, 512)
    assert CudaGraphConfig().enable_padding, "upstream pads only when asked to; here padding is the default"


@pytest.mark.parametrize(
    ("sizes", "text"), [((), ""), ((3,), "3"), ((3, 5, 6, 7), "3, 5 to 7"), ((1, 2, 9), "1 to 2, 9")]
)
def test_sizes_are_written_as_runs(sizes, text):
    assert runs_text(sizes) == text


graph_settings = st.tuples(
    st.none() | st.sets(st.integers(1, 24), min_size=1).map(lambda sizes: tuple(sorted(sizes))),
    st.booleans(),
    st.integers(1, 20),
    st.integers(1, 80),
    st.integers(1, 4),
)


@settings(deadline=None, max_examples=300)
@given(graph_settings)
def test_the_doctor_names_exactly_the_batch_sizes_that_would_run_eagerly(chosen):
    sizes, padding, max_batch_size, max_num_tokens, rows = chosen
    config = CudaGraphConfig(batch_sizes=sizes, enable_padding=padding)
    limits = {"max_batch_size": max_batch_size, "max_num_tokens": max_num_tokens, "tokens_per_request": rows}
    buckets = resolve_batch_sizes(config, **limits)
    findings = bucket_findings(config, **limits)
    cap = min(max_batch_size, max_num_tokens // rows)
    captured = frozenset(make_key(padded_batch_size=b, draft_len=0, sample_mode=SampleMode.GREEDY) for b in buckets)
    eager = [n for n in range(1, cap + 1) if select_graph(_facts(n, buckets, max_batch_size, padding, captured)).reason]
    uncovered = [finding for finding in findings if finding.kind in UNCOVERED]
    assert sorted(size for finding in uncovered for size in finding.sizes) == eager
    too_large = sorted(size for finding in findings if finding.kind in TOO_LARGE for size in finding.sizes)
    assert too_large == [size for size in sizes or () if size > cap]
    assert all(finding.sentence and finding.fix and finding.sizes for finding in findings)


UNCOVERED = {
    FindingKind.SIZE_BETWEEN_BUCKETS,
    FindingKind.SIZE_ABOVE_LARGEST_BUCKET,
    FindingKind.MAXIMUM_IS_NO_BUCKET,
}
TOO_LARGE = {FindingKind.BUCKET_ABOVE_BATCH_LIMIT, FindingKind.BUCKET_ABOVE_TOKEN_BUDGET}


def _facts(num_requests, buckets, max_batch_size, padding, captured):
    return GraphFacts(
        num_requests=num_requests,
        num_contexts=0,
        draft_len=0,
        sample_mode=SampleMode.GREEDY,
        graphs_enabled=True,
        is_warmup=False,
        padding_enabled=padding,
        buckets=buckets,
        max_batch_size=max_batch_size,
        dummy_available=True,
        captured=captured,
    )


@given(st.integers(1, 600), st.integers(0, 600))
def test_the_default_list_with_padding_has_no_findings(limit, spare):
    assert bucket_findings(CudaGraphConfig(), max_batch_size=limit, max_num_tokens=limit + spare) == ()


@settings(deadline=None)
@given(graph_settings)
def test_adding_what_the_fixes_name_leaves_no_batch_without_a_graph(chosen):
    sizes, padding, max_batch_size, max_num_tokens, rows = chosen
    limits = {"max_batch_size": max_batch_size, "max_num_tokens": max_num_tokens, "tokens_per_request": rows}
    findings = bucket_findings(CudaGraphConfig(batch_sizes=sizes, enable_padding=padding), **limits)
    missing = {size for finding in findings if finding.kind in UNCOVERED for size in finding.sizes}
    kept = resolve_batch_sizes(CudaGraphConfig(batch_sizes=sizes, enable_padding=padding), **limits)
    fixed = tuple(sorted({*kept, *missing}))
    if fixed:
        assert bucket_findings(CudaGraphConfig(batch_sizes=fixed, enable_padding=padding), **limits) == ()


def _only(kind, **settings_):
    limits = {"max_batch_size": settings_.pop("max_batch_size", 8), "max_num_tokens": settings_.pop("tokens", 512)}
    rows = settings_.pop("rows", 1)
    found = bucket_findings(CudaGraphConfig(**settings_), **limits, tokens_per_request=rows)
    return next(finding for finding in found if finding.kind is kind)


def test_each_finding_says_what_is_wrong_and_what_to_do():
    gap = _only(FindingKind.SIZE_BETWEEN_BUCKETS, batch_sizes=(1, 4, 8), enable_padding=False)
    assert gap.sentence == ("padding is off and there is no exact bucket for 2 to 3, 5 to 7: such batches run eagerly")
    assert gap.fix.startswith("set CudaGraphConfig(enable_padding=True)")
    above = _only(FindingKind.SIZE_ABOVE_LARGEST_BUCKET, batch_sizes=(1, 4))
    assert above.sentence == "batches of 5 to 7 are above the largest bucket, 4: they run eagerly"
    assert above.fix == "add 8 to CudaGraphConfig.batch_sizes, to which they are padded"
    top = _only(FindingKind.MAXIMUM_IS_NO_BUCKET, batch_sizes=(1, 4))
    assert top.sentence.startswith("the largest batch that a step can hold, 8, is no bucket")
    assert top.fix == ("add 8 to CudaGraphConfig.batch_sizes, or lower SchedulerConfig.max_batch_size to 4")
    tokens = _only(FindingKind.BUCKET_ABOVE_TOKEN_BUDGET, batch_sizes=(1, 8), tokens=12, rows=3)
    assert tokens.sentence == "max_num_tokens has room for 4 requests a step, and there are buckets for 8"
    limit = _only(FindingKind.BUCKET_ABOVE_BATCH_LIMIT, batch_sizes=(8, 16))
    assert limit.sentence == "no step holds more than max_batch_size=8 requests, and there are buckets for 16"


def test_a_bucket_that_is_cut_to_the_limit_is_replaced_by_it_and_another_dropped():
    cut = _only(FindingKind.BUCKET_ABOVE_BATCH_LIMIT, batch_sizes=(1, 2, 16))
    assert cut.fix == (
        "write 8 in their place in CudaGraphConfig.batch_sizes, or raise SchedulerConfig.max_batch_size to 16"
    )
    dropped = _only(FindingKind.BUCKET_ABOVE_BATCH_LIMIT, batch_sizes=(1, 8, 16))
    assert dropped.fix.startswith("drop them from CudaGraphConfig.batch_sizes")


@given(st.sets(st.integers(1, 200), min_size=1).map(lambda sizes: tuple(sorted(sizes))), st.integers(8, 150))
def test_prefill_buckets_that_no_step_can_fill_are_named(sizes, max_num_tokens):
    config = CudaGraphConfig(prefill_num_tokens=sizes)
    found = bucket_findings(config, max_batch_size=8, max_num_tokens=max_num_tokens)
    above = tuple(size for size in sizes if size > max_num_tokens)
    assert [finding.sizes for finding in found] == ([above] if above else [])
    if above:
        assert found[0].kind is FindingKind.PREFILL_ABOVE_TOKEN_BUDGET
        assert found[0].sentence.startswith(f"no step has more than max_num_tokens={max_num_tokens} rows")
        assert found[0].fix.endswith(f"or raise max_num_tokens to {above[-1]}")


@given(
    st.sets(st.integers(1, 12), max_size=3).map(lambda lens: tuple(sorted(lens))),
    st.integers(1, 12),
    st.integers(0, 40),
    st.booleans(),
)
def test_a_batch_of_verify_rows_fits_a_step_and_one_that_fits_has_a_graph_when_padded(
    draft_lens, max_batch_size, spare, padding
):
    limits = {"max_batch_size": max_batch_size, "max_num_tokens": max_batch_size + spare}
    config = CudaGraphConfig(draft_lens=draft_lens, enable_padding=padding)
    buckets = resolve_buckets(config, **limits)
    assert list(buckets) == [0, *draft_lens]
    assert buckets[0] == resolve_batch_sizes(config, **limits)
    for draft_len, sizes in buckets.items():
        most = min(max_batch_size, limits["max_num_tokens"] // (1 + draft_len))
        assert all(size * (1 + draft_len) <= limits["max_num_tokens"] for size in sizes)
        assert not padding or max(sizes, default=0) == most
    too_long = tuple(draft_len for draft_len in draft_lens if 1 + draft_len > limits["max_num_tokens"])
    found = bucket_findings(config, **limits)
    kind = FindingKind.DRAFTS_ABOVE_TOKEN_BUDGET
    assert [finding.sizes for finding in found if finding.kind is kind] == ([too_long] if too_long else [])


def test_graphs_that_are_off_have_no_findings():
    assert bucket_findings(CudaGraphConfig(enabled=False, batch_sizes=(1,)), max_batch_size=8, max_num_tokens=9) == ()


def test_the_buckets_of_a_configuration_are_those_of_its_own_limits():
    scheduler = SchedulerConfig(max_batch_size=4, max_num_tokens=6, draft_len=2)
    graphs = CudaGraphConfig(batch_sizes=(1, 2, 4), draft_lens=(2,))
    assert buckets_of(EngineConfig(scheduler=scheduler, cuda_graph=graphs)) == {0: (1, 2, 4), 2: (1, 2)}

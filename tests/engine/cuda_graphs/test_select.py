"""Choosing a graph: the same answer as brute force, one order of reasons, and each reason met by a real engine."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.cuda_graphs.buckets import resolve_batch_sizes
from engine.cuda_graphs.key import KeyType, SampleMode, make_key
from engine.cuda_graphs.select import BodyFacts, GraphFacts, select_graph
from engine.decisions import Decisions
from engine.reasons import FallOff
from tests.engine.models.compilers import needs_compiler

# Three conditions belong to other paths: steps with contexts where prefill graphs exist, a compiled body, drafts.
NOT_PLAIN = (FallOff.ABOVE_LARGEST_PREFILL_BUCKET, FallOff.COMPILE_NOT_RECORDED, FallOff.DRAFT_LEN_NOT_CAPTURED)
DECODE_ORDER = [reason for reason in FallOff if reason not in NOT_PLAIN]
VERIFY_ORDER = [reason for reason in FallOff if reason not in NOT_PLAIN[:2]]
bucket_lists = st.sets(st.integers(1, 12), max_size=5).map(lambda sizes: tuple(sorted(sizes)))


@st.composite
def facts_of_a_step(draw):
    buckets = draw(bucket_lists)
    keys = [KeyType(size, draft, mode) for size in buckets for draft in (0, 1) for mode in SampleMode]
    return GraphFacts(
        num_requests=draw(st.integers(1, 14)),
        num_contexts=draw(st.integers(0, 1)),
        draft_len=draw(st.integers(0, 1)),
        sample_mode=draw(st.sampled_from(SampleMode)),
        graphs_enabled=draw(st.integers(0, 4)) > 0,
        is_warmup=draw(st.integers(0, 4)) == 0,
        padding_enabled=draw(st.booleans()),
        buckets=buckets,
        max_batch_size=draw(st.integers(1, 14)),
        dummy_available=draw(st.booleans()),
        captured=frozenset(draw(st.lists(st.sampled_from(keys))) if keys else ()),
    )


def _possible_keys(facts):
    """Every captured key that could run the step, by trying all of them."""
    for key in facts.captured:
        fits = facts.num_requests <= key.batch_size <= facts.max_batch_size
        needs_padding = key.batch_size > facts.num_requests
        may_pad = facts.padding_enabled and facts.dummy_available
        smaller = [s for s in facts.buckets if facts.num_requests <= s < key.batch_size]
        alike = (key.draft_len, key.sample_mode) == (facts.draft_len, facts.sample_mode)
        if fits and alike and not smaller and (may_pad or not needs_padding):
            yield key


@settings(deadline=None, max_examples=400)
@given(facts_of_a_step())
def test_it_takes_a_graph_exactly_when_one_can_run_the_step(facts):
    selection = select_graph(facts)
    serves = facts.graphs_enabled and not facts.is_warmup and not facts.num_contexts
    possible = list(_possible_keys(facts)) if serves else []
    assert [selection.key] == (possible or [None])
    assert (selection.reason is None) == (selection.key is not None)
    if selection.key is not None:
        assert selection.key.batch_size == facts.num_requests + selection.num_padding
    else:
        assert selection.num_padding == 0


@settings(deadline=None, max_examples=400)
@given(facts_of_a_step())
def test_the_checklist_has_every_reason_in_order_and_stops_at_the_first_failure(facts):
    selection = select_graph(facts)
    order = VERIFY_ORDER if facts.draft_len else DECODE_ORDER
    assert [condition.reason for condition in selection.conditions] == order
    marks = [condition.passed for condition in selection.conditions]
    if selection.reason is None:
        assert marks == [True] * len(marks)
    else:
        at = order.index(selection.reason)
        assert marks == [True] * at + [False] + [None] * (len(marks) - at - 1)


@settings(deadline=None)
@given(facts_of_a_step(), st.sampled_from(list(FallOff)))
def test_a_condition_that_failed_names_what_was_needed_and_what_was_got(facts, reason):
    failed = [condition for condition in select_graph(facts).conditions if condition.passed is False]
    assert len(failed) <= 1
    assert all(condition.needed and condition.got for condition in failed)


def _bare_facts(**changes):
    facts = {
        "num_requests": 3, "num_contexts": 0, "draft_len": 0, "sample_mode": SampleMode.FULL, "graphs_enabled": True,
        "is_warmup": False, "padding_enabled": True, "buckets": (2, 4), "max_batch_size": 4, "dummy_available": True,
        "captured": frozenset({KeyType(4, 0, SampleMode.GREEDY)}),
    }  # fmt: skip
    return GraphFacts(**(facts | changes))


def test_a_bucket_with_the_other_sampler_is_told_apart_from_one_without_a_graph():
    assert select_graph(_bare_facts()).reason is FallOff.SAMPLER_MODE_NOT_CAPTURED
    assert select_graph(_bare_facts(num_requests=2)).reason is FallOff.CAPTURE_NOT_ALLOWED_NOW


def test_a_graph_of_another_draft_length_does_not_count_as_the_other_sampler():
    captured = frozenset({KeyType(4, 1, SampleMode.FULL)})
    assert select_graph(_bare_facts(captured=captured)).reason is FallOff.CAPTURE_NOT_ALLOWED_NOW


def test_a_draft_length_without_buckets_is_told_apart_from_a_batch_above_them():
    captured = frozenset({KeyType(4, 0, SampleMode.FULL), KeyType(2, 1, SampleMode.FULL)})
    selection = select_graph(_bare_facts(draft_len=3, buckets=(), captured=captured))
    assert selection.reason is FallOff.DRAFT_LEN_NOT_CAPTURED
    failed = next(condition for condition in selection.conditions if condition.passed is False)
    assert (failed.needed, failed.got) == ("draft length 3", "0, 1")
    above = select_graph(_bare_facts(draft_len=1, buckets=(2,), captured=captured))
    assert above.reason is FallOff.ABOVE_LARGEST_BUCKET
    assert select_graph(_bare_facts(draft_len=1, num_requests=1, buckets=(2,), captured=captured)).num_padding == 1


def test_a_bucket_beyond_the_batch_limit_is_no_bucket():
    assert select_graph(_bare_facts(max_batch_size=3)).reason is FallOff.ABOVE_LARGEST_BUCKET


@settings(deadline=None, max_examples=300)
@given(
    facts_of_a_step(),
    st.builds(
        BodyFacts,
        is_recorded=st.booleans(),
        prefill_buckets=bucket_lists,
        num_rows=st.integers(1, 16),
    ),
)
def test_a_step_with_contexts_takes_the_smallest_chain_that_holds_its_rows(facts, body):
    selection = select_graph(dataclasses.replace(facts, body=body))
    reasons = [condition.reason for condition in selection.conditions]
    assert reasons == [reason for reason in FallOff if reason in reasons], "in the order of the enum"
    assert (FallOff.COMPILE_NOT_RECORDED in reasons) != body.is_recorded
    if not facts.num_contexts or not body.prefill_buckets:
        assert selection.prefill_bucket is None
        order = VERIFY_ORDER if facts.draft_len else DECODE_ORDER
        assert [reason for reason in reasons if reason is not FallOff.COMPILE_NOT_RECORDED] == order
        return
    assert selection.key is None
    assert reasons[-1] is FallOff.ABOVE_LARGEST_PREFILL_BUCKET
    assert FallOff.HAS_CONTEXT_UNPROMOTED not in reasons
    fitting = [size for size in body.prefill_buckets if size >= body.num_rows]
    serves = facts.graphs_enabled and not facts.is_warmup and body.is_recorded
    assert selection.prefill_bucket == (min(fitting) if fitting and serves else None)
    assert (selection.reason is None) == (selection.prefill_bucket is not None)
    assert selection.num_padding == 0, "rows are padded, not requests"


def test_a_step_above_every_chain_names_its_rows_and_the_largest():
    body = BodyFacts(prefill_buckets=(8, 64), num_rows=65)
    selection = select_graph(_bare_facts(num_contexts=1, body=body))
    assert selection.reason is FallOff.ABOVE_LARGEST_PREFILL_BUCKET
    assert (selection.conditions[-1].needed, selection.conditions[-1].got) == ("at most 64 rows", "65")


@pytest.mark.parametrize(("num_rows", "meant"), [(7, 8), (8, 8), (20, 64), (65, 64)])
def test_a_step_whose_chains_were_released_says_so_whatever_its_rows(num_rows, meant):
    body = BodyFacts(num_rows=num_rows, released_buckets=(8, 64))
    selection = select_graph(_bare_facts(num_contexts=1, captured=frozenset(), body=body))
    assert (selection.reason, selection.key, selection.prefill_bucket) == (FallOff.CAPTURE_NOT_ALLOWED_NOW, None, None)
    failed = selection.conditions[-1]
    assert (failed.needed, failed.got) == (f"a graph for (prefill {meant})", "none")
    assert select_graph(_bare_facts(num_requests=2, body=body)).conditions[-1].needed.startswith("a graph for (batch 2")


def test_prompts_after_a_release_are_eager_because_of_the_release():
    chosen = []

    def watched(facts):
        chosen.append(select_graph(facts))
        return chosen[-1]

    config = EngineConfig(
        device="cpu", max_seq_len=32, cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4), prefill_num_tokens=(64,))
    )
    with LLM("tiny", config, decisions=Decisions(select_graph=watched)) as llm:
        llm.generate([[5, 6, 7]] * 3, SamplingParams(max_tokens=1))
        assert (chosen[-1].reason, chosen[-1].prefill_bucket) == (None, 64)
        llm.release_graphs()
        llm.generate([[5, 6, 8]] * 3, SamplingParams(max_tokens=1))
    assert chosen[-1].reason is FallOff.CAPTURE_NOT_ALLOWED_NOW


def _release_graphs(llm):
    llm.release_graphs()


def _nothing(llm):
    assert llm.warmup_report is not None


# reason: graph settings, prompts, sampling, what happens after warm-up.
REACHED_BY = {
    FallOff.GRAPHS_DISABLED: ({"enabled": False}, 1, {}, _nothing),
    FallOff.COMPILE_NOT_RECORDED: ({"batch_sizes": (2,)}, 1, {}, _nothing),
    FallOff.WARMUP: ({}, 1, {}, _nothing),
    FallOff.HAS_CONTEXT_UNPROMOTED: ({}, 1, {}, _nothing),
    FallOff.ABOVE_LARGEST_PREFILL_BUCKET: ({"prefill_num_tokens": (1,)}, 1, {}, _nothing),
    FallOff.DRAFT_LEN_NOT_CAPTURED: ({"draft_lens": (1,)}, 1, {"draft_tokens": (9, 9)}, _nothing),
    FallOff.ABOVE_LARGEST_BUCKET: ({"batch_sizes": (1, 2)}, 3, {}, _nothing),
    FallOff.NO_EXACT_BUCKET_PADDING_OFF: ({"batch_sizes": (2,), "enable_padding": False}, 1, {}, _nothing),
    FallOff.NO_DUMMY_SLOT: ({"batch_sizes": (2,)}, 1, {}, _release_graphs),
    FallOff.SAMPLER_MODE_NOT_CAPTURED: ({"sample_modes": ("greedy",)}, 1, {"temperature": 1.0}, _nothing),
    FallOff.CAPTURE_NOT_ALLOWED_NOW: ({"batch_sizes": (1,)}, 1, {}, _release_graphs),
}


@pytest.mark.parametrize(
    "reason",
    [pytest.param(r, marks=needs_compiler) if r is FallOff.COMPILE_NOT_RECORDED else r for r in FallOff],
)
def test_every_reason_is_reached_by_a_real_run_which_ends_well(reason):
    graphs, num_prompts, sampling, interfere = REACHED_BY[reason]
    config = EngineConfig(
        device="cpu",
        max_seq_len=32,
        torch_compile=reason is FallOff.COMPILE_NOT_RECORDED,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=32),
        cuda_graph=CudaGraphConfig(**({"batch_sizes": (1,)} | graphs)),
    )
    seen = []

    def watched(facts):
        seen.append(select_graph(facts).reason)
        return select_graph(facts)

    with LLM("tiny", config, decisions=Decisions(select_graph=watched)) as llm:
        assert seen == [FallOff.WARMUP] if config.cuda_graph.enabled and not config.torch_compile else len(seen) == 1
        interfere(llm)
        drafts = sampling.get("draft_tokens", ())
        params = SamplingParams(max_tokens=3, ignore_eos=True, temperature=sampling.get("temperature", 0.0))
        for _ in range(num_prompts):
            llm.submit([5, 6], params, draft_tokens=drafts)
        outputs = []
        while llm.has_unfinished:
            outputs += llm.step()
        llm.check()
    assert [len(output.token_ids) for output in outputs] == [3] * num_prompts
    assert reason in seen


@settings(deadline=None, max_examples=20)
@given(
    max_batch_size=st.integers(1, 300),
    max_num_tokens=st.integers(300, 600),
    padding=st.booleans(),
    explicit=bucket_lists,
)
def test_every_captured_key_is_reachable_by_a_step_that_the_scheduler_can_make(
    max_batch_size, max_num_tokens, padding, explicit
):
    sizes = tuple(size for size in explicit if size <= max_batch_size) or None
    graphs = CudaGraphConfig(batch_sizes=sizes, enable_padding=padding)
    buckets = resolve_batch_sizes(graphs, max_batch_size=max_batch_size, max_num_tokens=max_num_tokens)
    captured = frozenset(
        make_key(padded_batch_size=size, draft_len=0, sample_mode=mode) for size in buckets for mode in SampleMode
    )
    reached = set()
    for num_requests in range(1, max_batch_size + 1):
        for mode in SampleMode:
            facts = GraphFacts(
                num_requests=num_requests,
                num_contexts=0,
                draft_len=0,
                sample_mode=mode,
                graphs_enabled=True,
                is_warmup=False,
                padding_enabled=padding,
                buckets=buckets,
                max_batch_size=max_batch_size,
                dummy_available=True,
                captured=captured,
            )
            reached.add(select_graph(facts).key)
    assert reached - {None} == captured

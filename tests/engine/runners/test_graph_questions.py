"""Both runners ask the same questions of a batch, and hand the decisions the numbers of that batch."""

import dataclasses

import pytest

from engine.cuda_graphs.dummies import PaddingDummies
from engine.cuda_graphs.key import SampleMode, capture_keys
from engine.cuda_graphs.select import BodyFacts, select_graph
from engine.decisions import Decisions
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.reasons import FallOff
from engine.resources import ResourceManager
from engine.runners.graph_questions import choose_graph, graph_facts, num_contexts_left, plan_padding
from engine.runners.null import NullRunnerConfig
from engine.scheduled import BudgetUse, PaddedBatch, ScheduledRequests, context_span, generation_span
from tests.engine.live_requests import running, waiting

LIMITS = NullRunnerConfig(max_batch_size=8, buckets=(1, 2, 4, 8))
CAPTURED = frozenset(capture_keys((1, 2, 4, 8), ["greedy"]))


def batch(*prompt_lens, num_running=0):
    contexts = [waiting(at, prompt_len=length) for at, length in enumerate(prompt_lens)]
    spans = tuple(context_span(request, request.context_remaining_length) for request in contexts)
    decode = tuple(generation_span(running(50 + at)) for at in range(num_running))
    num_tokens = sum(prompt_lens) + num_running
    return ScheduledRequests(spans, decode, (), (), BudgetUse(num_tokens, 512, len(spans) + num_running, 8))


@pytest.fixture
def dummies():
    made = PaddingDummies(
        ResourceManager(KVCacheManager(num_blocks=8, tokens_per_block=4, max_seq_len=64), SeqSlotManager(9))
    )
    made.preallocate()
    return made


def facts(scheduled, padded, dummies, *, limits=LIMITS, is_warmup=False):
    return graph_facts(
        scheduled,
        padded,
        limits,
        dummies,
        mode=SampleMode.GREEDY,
        is_warmup=is_warmup,
        captured=CAPTURED,
        body=BodyFacts(num_rows=scheduled.num_tokens),
    )


@pytest.mark.parametrize(
    ("scheduled", "num_promoted", "num_padding"),
    [
        (batch(num_running=3), 0, 1),
        (batch(num_running=4), 0, 0),
        (batch(1, 1, num_running=1), 2, 1),
        (batch(1, 2, num_running=1), 0, 0),
        (batch(9), 0, 0),
    ],
)
def test_contexts_are_promoted_all_or_none_and_only_decode_rows_are_padded(
    scheduled, num_promoted, num_padding, dummies
):
    promoted, padding = plan_padding(Decisions(), scheduled, LIMITS, dummies)
    assert ([span.request_id for span in promoted], padding) == (list(range(num_promoted)), num_padding)
    padded = PaddedBatch(scheduled, scheduled.spans, padding, tuple(span.request_id for span in promoted))
    assert num_contexts_left(scheduled, padded) == len(scheduled.context_requests) - num_promoted


def test_a_batch_without_contexts_is_not_asked_about_promotion(dummies):
    def promote(*_, **__):
        message = "there is nothing to promote"
        raise AssertionError(message)

    decisions = Decisions(promote_final_contexts=promote)
    assert plan_padding(decisions, batch(num_running=3), LIMITS, dummies) == ((), 1)


def test_a_swapped_decision_is_the_one_that_is_asked(dummies):
    decisions = Decisions(num_padding_requests=lambda **facts: 10 * facts["num_requests"] + facts["dummy_available"])
    assert plan_padding(decisions, batch(num_running=3), LIMITS, dummies) == ((), 31)


def test_the_facts_are_the_numbers_of_the_batch(dummies):
    scheduled = batch(5, num_running=2)
    found = facts(scheduled, PaddedBatch(scheduled, scheduled.spans), dummies)
    assert (found.num_requests, found.num_contexts, found.draft_len, found.body.num_rows) == (3, 1, 0, 7)
    assert (found.buckets, found.max_batch_size, found.captured) == ((1, 2, 4, 8), 8, CAPTURED)
    assert (found.graphs_enabled, found.padding_enabled, found.dummy_available) == (True, True, True)
    promoted = PaddedBatch(scheduled, scheduled.spans, 0, (0,))
    assert facts(scheduled, promoted, dummies).num_contexts == 0
    assert facts(scheduled, promoted, None).dummy_available is False
    assert facts(scheduled, promoted, dummies, is_warmup=True).is_warmup is True
    off = dataclasses.replace(LIMITS, buckets=(), padding_enabled=False)
    changed = facts(scheduled, promoted, dummies, limits=off)
    assert (changed.graphs_enabled, changed.padding_enabled, changed.buckets) == (False, False, ())


def chosen(num_prompts, *, num_running=0, chains=(16,), limits=LIMITS):
    """Choose for prompts of one token each, all promoted; return the choice and how often the decision was asked."""
    scheduled, asked = batch(*[1] * num_prompts, num_running=num_running), []

    def select(facts):
        asked.append(facts.num_contexts)
        return select_graph(facts)

    found = graph_facts(
        scheduled,
        PaddedBatch(scheduled, scheduled.spans, 0, tuple(range(num_prompts))),
        limits,
        None,
        mode=SampleMode.GREEDY,
        is_warmup=False,
        captured=CAPTURED,
        body=BodyFacts(prefill_buckets=chains, num_rows=scheduled.num_tokens),
    )
    return choose_graph(Decisions(select_graph=select), found, num_prompts), asked


def test_promoted_rows_without_a_graph_run_as_the_chain_that_holds_them_unpromoted():
    selection, asked = chosen(7, num_running=2)
    assert asked == [0, 7]
    assert (selection.key, selection.reason, selection.prefill_bucket) == (None, None, 16)
    assert all(condition.passed for condition in selection.conditions)
    assert [condition.reason for condition in selection.conditions][-1] is FallOff.ABOVE_LARGEST_PREFILL_BUCKET


def test_promoted_rows_with_a_graph_are_not_asked_about_again():
    selection, asked = chosen(3, num_running=1)
    assert asked == [0]
    assert selection.key is not None
    assert selection.key.batch_size == 4


@pytest.mark.parametrize("chains", [(), (4, 8)])
def test_without_a_chain_either_the_reason_is_that_of_the_promoted_rows(chains):
    selection, asked = chosen(9, chains=chains)
    assert asked == [0, 9][: 1 + bool(chains)]
    assert (selection.reason, selection.prefill_bucket) == (FallOff.ABOVE_LARGEST_BUCKET, None)
    failed = next(condition for condition in selection.conditions if condition.passed is False)
    assert (failed.needed, failed.got) == ("at most 8 requests", "9")


def test_a_step_that_no_graph_could_take_keeps_its_first_reason():
    off = dataclasses.replace(LIMITS, buckets=())
    selection, _asked = chosen(2, limits=off)
    assert (selection.reason, selection.prefill_bucket) == (FallOff.GRAPHS_DISABLED, None)

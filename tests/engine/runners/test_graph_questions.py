"""Both runners ask the same questions of a batch, and hand the decisions the numbers of that batch."""

import dataclasses

import pytest

from engine.cuda_graphs.dummies import PaddingDummies
from engine.cuda_graphs.key import SampleMode, capture_keys
from engine.cuda_graphs.select import BodyFacts
from engine.decisions import Decisions
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.resources import ResourceManager
from engine.runners.graph_questions import graph_facts, num_contexts_left, plan_padding
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

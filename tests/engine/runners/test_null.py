"""The null runner decides as the decoder's runner does, and computes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import CaptureRefusedError
from engine.inputs.records import ScheduledInputs
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.probe import Stage
from engine.reasons import FallOff, PathKind
from engine.resources import ResourceManager
from engine.runners.null import NullRunner, NullRunnerConfig
from engine.scheduled import BudgetUse, ScheduledRequests, context_span, generation_span
from tests.engine.live_requests import running, waiting


class Seen:
    """A probe that keeps the newest record of each stage."""

    def __init__(self):
        self.values = {}

    def emit(self, stage, step, value):
        self.values[stage] = value


def resources(num_blocks=64, num_slots=9):
    return ResourceManager(
        KVCacheManager(num_blocks=num_blocks, tokens_per_block=4, max_seq_len=256), SeqSlotManager(num_slots)
    )


def runner(manager, **config):
    made = NullRunner(NullRunnerConfig(max_batch_size=8, **({"buckets": (1, 2, 4, 8)} | config)))
    made.warmup(manager)
    return made


def batch(*, contexts=(), generations=()):
    spans = tuple(context_span(request, request.context_remaining_length) for request in contexts)
    decode = tuple(generation_span(request) for request in generations)
    num_tokens = sum(span.num_rows for span in spans) + len(decode)
    return ScheduledRequests(spans, decode, (), (), BudgetUse(num_tokens, 512, len(spans) + len(decode), 8))


def decide(made, manager, scheduled):
    seen = Seen()
    made.set_probe(seen)
    outputs = made.forward(ScheduledInputs(scheduled, 0), resource_manager=manager)
    return seen.values, outputs.event


@given(st.integers(1, 8))
def test_a_decode_batch_is_padded_to_its_bucket_and_takes_the_graph(size):
    manager = resources()
    values, event = decide(runner(manager), manager, batch(generations=[running(at) for at in range(size)]))
    padded, chosen = values[Stage.PADDED], values[Stage.GRAPH_CHOSEN]
    assert len(padded.spans) == len(list(padded.spans)) == chosen.key.batch_size >= size
    assert padded.num_padding == chosen.key.batch_size - size
    assert [span.request.is_dummy for span in padded.spans] == [False] * size + [True] * padded.num_padding
    assert event.path is PathKind.REPLAY
    assert event.simulated


def test_a_prompt_falls_off_unpadded_and_a_last_prompt_token_is_promoted():
    manager = resources()
    made = runner(manager)
    values, event = decide(made, manager, batch(contexts=[waiting(1)], generations=[running(2)]))
    assert values[Stage.GRAPH_CHOSEN].reason is FallOff.HAS_CONTEXT_UNPROMOTED
    assert values[Stage.PADDED].num_padding == 0
    assert event.path is PathKind.EAGER
    last = waiting(3, prompt_len=20, position=19)
    values, event = decide(made, manager, batch(contexts=[last], generations=[running(2)]))
    assert values[Stage.PADDED].promoted_request_ids == (3,)
    assert [span.request_id for span in values[Stage.PADDED].spans] == [3, 2]
    assert event.path is PathKind.REPLAY


def test_prefill_buckets_take_a_step_with_prompts():
    manager = resources()
    made = runner(manager, prefill_buckets=(32,))
    values, event = decide(made, manager, batch(contexts=[waiting(1, prompt_len=20)]))
    assert values[Stage.GRAPH_CHOSEN].prefill_bucket == 32
    assert event.path is PathKind.PREFILL_REPLAY


def test_last_prompt_tokens_above_the_largest_bucket_take_the_chain():
    manager = resources()
    made = runner(manager, buckets=(1, 2), prefill_buckets=(8,))
    values, event = decide(made, manager, batch(contexts=[waiting(at, prompt_len=1) for at in range(5)]))
    assert values[Stage.PADDED].promoted_request_ids == (0, 1, 2, 3, 4)
    assert values[Stage.GRAPH_CHOSEN].prefill_bucket == 8
    assert event.path is PathKind.PREFILL_REPLAY


def test_without_graphs_every_step_is_eager_and_no_block_is_held():
    manager = resources()
    made = runner(manager, buckets=())
    assert manager.kv_cache.num_free_blocks == manager.kv_cache.num_blocks
    values, _ = decide(made, manager, batch(generations=[running(1)]))
    assert values[Stage.GRAPH_CHOSEN].reason is FallOff.GRAPHS_DISABLED
    assert len(values[Stage.PADDED].spans) == 1


def test_released_graphs_give_the_dummy_back_and_steps_say_why_they_are_eager():
    manager = resources()
    made = runner(manager)
    assert manager.kv_cache.num_free_blocks == manager.kv_cache.num_blocks - 1
    made.release_graphs()
    made.wait_for_input_copy()
    made.roll_back()
    manager.check()
    assert manager.kv_cache.num_free_blocks == manager.kv_cache.num_blocks
    values, _ = decide(made, manager, batch(generations=[running(1)]))
    assert values[Stage.GRAPH_CHOSEN].reason is FallOff.CAPTURE_NOT_ALLOWED_NOW


@pytest.mark.parametrize("buckets", [(), (1, 4)])
def test_released_chains_are_told_from_chains_that_were_never_there(buckets):
    manager = resources()
    made = runner(manager, buckets=buckets, prefill_buckets=(32,))
    values, _ = decide(made, manager, batch(contexts=[waiting(1, prompt_len=9)]))
    assert values[Stage.GRAPH_CHOSEN].prefill_bucket == 32
    made.release_graphs()
    values, _ = decide(made, manager, batch(contexts=[waiting(2, prompt_len=9)]))
    assert values[Stage.GRAPH_CHOSEN].reason is FallOff.CAPTURE_NOT_ALLOWED_NOW


def test_a_second_warm_up_is_refused_and_the_graphs_stay():
    manager = resources()
    made = runner(manager)
    with pytest.raises(CaptureRefusedError, match="warm-up runs once"):
        made.warmup(manager)
    manager.check()
    values, _ = decide(made, manager, batch(generations=[running(1)]))
    assert values[Stage.GRAPH_CHOSEN].key is not None


def test_there_are_no_logits():
    manager = resources()
    outputs = runner(manager).forward(ScheduledInputs(batch(generations=[running(1)]), 0), resource_manager=manager)
    with pytest.raises(AssertionError, match="logits read"):
        outputs.logits.tensor  # noqa: B018 (reading it is the point)

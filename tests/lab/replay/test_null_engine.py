"""The executor over the null runner: the same decisions as over a model, the same end of every request."""

import dataclasses

import pytest

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.llm import LLM
from engine.llm_request import RequestSpec
from engine.probe import Stage
from lab.replay.null_engine import VOCAB_SIZE, build_null_engine, length_params


def config_of(*, max_batch_size=4, overlap=False, reuse=True, **kv):
    return EngineConfig(
        device="cpu",
        max_seq_len=64,
        overlap=overlap,
        scheduler=SchedulerConfig(max_batch_size=max_batch_size, max_num_tokens=16, chunking="fcfs", chunk_unit=4),
        kv_cache=KVCacheConfig(num_blocks=64, tokens_per_block=4, enable_block_reuse=reuse, **kv),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4), sample_modes=("greedy",)),
    )


def run(engine):
    finished = []
    while engine.executor.has_unfinished:
        engine.executor.step()
        engine.executor.check()
        finished += engine.executor.take_finished()
    return {one.request.request_id: one.request for one in finished}


class Decided:
    """A probe that notes how each step was padded and where it ran."""

    def __init__(self):
        self.rows = []

    def emit(self, stage, step, value):
        if stage is Stage.PADDED:
            self.rows.append([value.num_padding, value.promoted_request_ids, len(value.spans)])
        elif stage is Stage.GRAPH_CHOSEN:
            self.rows[-1] += [str(value.key), value.reason]


def test_it_decides_every_step_as_the_runner_of_a_model_does():
    config = config_of(max_batch_size=4)
    prompts = [[1 + at] * length for at, length in enumerate((7, 13, 30, 5, 9))]
    params = SamplingParams(max_tokens=9, ignore_eos=True)
    real, null = Decided(), Decided()
    with LLM("tiny", config) as llm:
        llm.set_probe(real)
        for prompt in prompts:
            llm.submit(prompt, params)
        while llm.has_unfinished:
            llm.step()
    engine = build_null_engine(config)
    engine.observe(null)
    for at, prompt in enumerate(prompts):
        engine.submit(RequestSpec(at, prompt, params))
    while engine.executor.has_unfinished:
        engine.executor.step()
        engine.executor.take_finished()
    assert null.rows == real.rows
    assert len({row[3] for row in null.rows}) > 2


@pytest.mark.parametrize("overlap", [False, True])
def test_every_request_gets_its_exact_number_of_tokens_and_no_two_the_same_ones(overlap):
    engine = build_null_engine(config_of(overlap=overlap))
    for at in range(7):
        engine.submit(RequestSpec(at, range(100 * at, 100 * at + 5 + at), length_params(3 + 2 * at)))
    done = run(engine)
    assert {at: len(request.generated) for at, request in done.items()} == {at: 3 + 2 * at for at in range(7)}
    assert {tuple(set(request.generated)) for request in done.values()} == {(at,) for at in range(7)}
    assert engine.num_leaked_blocks == 0


def test_sampled_ids_stay_in_the_vocabulary_however_many_requests_there_were():
    engine = build_null_engine(config_of())
    engine.submit(RequestSpec(VOCAB_SIZE + 5, range(4), length_params(2)))
    assert run(engine)[VOCAB_SIZE + 5].generated == [5, 5]


def test_a_leak_is_counted():
    engine = build_null_engine(config_of())
    engine.resources.kv_cache.reserve(99, 9)
    assert engine.num_leaked_blocks == 3


def test_the_text_of_a_request_is_empty():
    engine = build_null_engine(config_of())
    engine.submit(RequestSpec(0, range(4), length_params(2)))
    engine.executor.step()
    engine.executor.step()
    assert [one.text for one in engine.executor.take_finished()] == [""]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("policy", ["guaranteed_no_evict", "max_utilization", "static_batch"])
def test_blocks_that_run_out_in_the_middle_end_requests_and_never_the_loop(policy, overlap):
    config = config_of(overlap=overlap)
    engine = build_null_engine(
        dataclasses.replace(config, scheduler=dataclasses.replace(config.scheduler, capacity_policy=policy))
    )
    kv_cache = engine.resources.kv_cache
    for at in range(3):
        engine.submit(RequestSpec(at, range(100 * at, 100 * at + 6), length_params(30)))
    for _ in range(4):
        engine.executor.step()
    thief = (1 << 62) + 99  # takes what was promised to the others, as a bug of the ledger would
    while kv_cache.num_free_blocks:
        kv_cache.reserve(thief, kv_cache.num_reserved_tokens(thief) + 1)
        if kv_cache.num_reserved_tokens(thief) == 64:  # the longest sequence
            thief += 1
    done = run(engine)
    assert {request.finish_reason for request in done.values()} <= {"error", "length"}
    failed = [request for request in done.values() if request.finish_reason == "error"]
    assert bool(failed) == (policy != "max_utilization"), "pauses make room where nobody was promised any"
    assert all("KV blocks" in request.error for request in failed), [request.error for request in failed]
    for request_id in range((1 << 62) + 99, thief + 1):
        kv_cache.free(request_id)
    engine.submit(RequestSpec(7, range(900, 906), length_params(30)))
    assert len(run(engine)[7].generated) == 30
    assert engine.num_leaked_blocks == 0

"""Requests are let in, paused and ended with everything they hold."""

import pytest

from engine import LLM, CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.executor.lifecycle import num_final_tokens
from engine.probe import Stage
from tests.engine.live_requests import running, waiting

PROMPTS = [[10 + i, 20, 30, 40 + i, 50] for i in range(4)]
PARAMS = SamplingParams(max_tokens=30, ignore_eos=True)


def config(**changes):
    fields = {
        "device": "cpu",
        "max_seq_len": 40,
        "scheduler": SchedulerConfig(
            max_batch_size=4, max_num_tokens=64, capacity_policy="max_utilization", chunking="fcfs"
        ),
        "kv_cache": KVCacheConfig(tokens_per_block=4, num_blocks=16),
        "cuda_graph": CudaGraphConfig(batch_sizes=(1, 2, 4)),
    }
    return EngineConfig(**(fields | changes))


@pytest.fixture(scope="module")
def expected():
    roomy = KVCacheConfig(tokens_per_block=4, enable_block_reuse=False)
    with LLM("tiny", config(kv_cache=roomy)) as llm:
        return [llm.generate([prompt], PARAMS)[0].token_ids for prompt in PROMPTS]


class Paused:
    """The requests that each step paused."""

    def __init__(self):
        self.ids = []

    def emit(self, stage, step, value):
        if stage is Stage.SCHEDULED:
            self.ids += [request.request_id for request in value.paused_requests]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("watched", [False, True])
def test_paused_requests_end_with_the_same_tokens(expected, overlap, reuse, watched):
    small = KVCacheConfig(tokens_per_block=4, num_blocks=16, enable_block_reuse=reuse)
    with LLM("tiny", config(overlap=overlap, kv_cache=small)) as llm:
        probe = Paused()
        if watched:
            llm.set_probe(probe)
        ids = [llm.submit(prompt, PARAMS) for prompt in PROMPTS]
        outputs = {}
        while llm.has_unfinished:
            outputs |= {out.request_id: out for out in llm.step()}
            llm.check()
        assert [outputs[i].token_ids for i in ids] == expected
        assert not watched or probe.ids, "four requests of nine blocks do not fit into sixteen"
        assert [outputs[i].cached_tokens for i in ids] == [0] * 4, "what a pause brings back is no saving"


@pytest.mark.parametrize("overlap", [False, True])
def test_a_prompt_that_comes_again_computes_only_what_is_new(overlap):
    with LLM("tiny", config(overlap=overlap, max_seq_len=64, kv_cache=KVCacheConfig(tokens_per_block=4))) as llm:
        prompt = list(range(1, 23))
        (first,) = llm.generate([prompt], SamplingParams(max_tokens=8, ignore_eos=True))
        (again,) = llm.generate([prompt], SamplingParams(max_tokens=8, ignore_eos=True))
        turn = [*prompt, *first.token_ids, 7]
        (further,) = llm.generate([turn], SamplingParams(max_tokens=4, ignore_eos=True))
        llm.check()
    assert first.cached_tokens == 0
    assert again.token_ids == first.token_ids
    assert again.cached_tokens == 21, "all but the one token that must be computed"
    assert further.cached_tokens == 28, "every full block of the first turn"


def test_a_salt_keeps_prompts_apart():
    with LLM("tiny", config(max_seq_len=64, kv_cache=KVCacheConfig(tokens_per_block=4))) as llm:
        cached = []
        for salt in ("a", "b", "a", None):
            llm.submit(list(range(1, 18)), SamplingParams(max_tokens=2, ignore_eos=True), cache_salt=salt)
            outputs = []
            while llm.has_unfinished:
                outputs += llm.step()
            cached.append(outputs[0].cached_tokens)
    assert cached == [0, 0, 16, 0]


def test_an_aborted_prompt_leaves_its_finished_chunks_for_the_next():
    chunked = SchedulerConfig(max_batch_size=1, max_num_tokens=8, chunking="fcfs")
    off = CudaGraphConfig(enabled=False)
    with LLM("tiny", config(scheduler=chunked, kv_cache=KVCacheConfig(tokens_per_block=4), cuda_graph=off)) as llm:
        prompt = list(range(1, 30))
        first = llm.submit(prompt, SamplingParams(max_tokens=2))
        llm.step()
        llm.abort(first)
        (aborted,) = llm.step()
        assert aborted.finish_reason == "abort"
        (again,) = llm.generate([prompt], SamplingParams(max_tokens=2))
        llm.check()
    assert again.cached_tokens == 8


def test_the_newest_token_is_not_final():
    assert num_final_tokens(running(0, prompt_len=5, generated=3)) == 7
    assert num_final_tokens(waiting(0, prompt_len=9, position=4)) == 4


def test_a_standstill_ends_the_oldest_request_and_says_what_it_lacks(monkeypatch):
    with LLM("tiny", config()) as llm:
        llm.submit([1, 2], PARAMS)
        schedule = llm._executor._schedule
        empty = schedule()
        monkeypatch.setattr(llm._executor, "_schedule", lambda: type(empty)((), (), (), empty.deferrals, empty.budget))
        (output,) = llm.step()
        assert output.finish_reason == "error"
        assert output.error == "SchedulingError: no request can run, and none will"
        llm.check()

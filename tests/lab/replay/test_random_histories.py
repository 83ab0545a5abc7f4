"""What is carried from one step to the next changes no decision: not who runs, nor who waits and why, nor a block.

The same random history is served twice: as it is, and by a loop that asks every request anew in every step.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.executor.decode_rows import look_at
from engine.llm_request import LlmRequest, RequestSpec
from engine.sampling.stopping import StopChecker
from engine.scheduled import generation_spans
from engine.scheduler.promises import Promises
from lab.replay.null_engine import _NO_TEXT, NullSamples, build_null_engine

EOS, OTHER = 5, 6


class _Samples(NullSamples):
    """Tokens that end some requests early; the same ones at every run."""

    def __init__(self, num_slots, *, seed):
        super().__init__(num_slots)
        self._random = random.Random(seed)

    def follow(self, scheduled, outputs):
        pending = super().follow(scheduled, outputs)
        for slot in range(pending._tokens.shape[1]):
            drawn = self._random.random()
            if drawn < 0.1 and not scheduled.draft_len:
                pending._tokens[0, slot] = EOS if drawn < 0.05 else OTHER
        return pending


def build(choose, seed):
    reuse = choose.random() < 0.6
    config = EngineConfig(
        device="cpu",
        max_seq_len=60,
        overlap=choose.random() < 0.5,
        scheduler=SchedulerConfig(
            max_batch_size=choose.choice([2, 5, 12]),
            max_num_tokens=60,
            capacity_policy=choose.choice(["guaranteed_no_evict", "max_utilization", "static_batch"]),
            chunking=choose.choice([None, "fcfs", "equal_progress"]),
            draft_len=2,
        ),
        kv_cache=KVCacheConfig(
            tokens_per_block=4,
            num_blocks=choose.choice([16, 30, 90]),
            enable_block_reuse=reuse,
            host_blocks=choose.choice([0, 8]) if reuse else 0,
        ),
    )
    engine = build_null_engine(config)
    executor = engine.executor
    samples = _Samples(config.scheduler.max_batch_size + 1, seed=seed)
    executor._samples = executor._life._samples = samples
    executor._repetition._eos_ids = frozenset({EOS})
    executor._repetition.eos_table[EOS] = True
    return engine


def ask_everybody(executor):
    """Carry nothing over: neither rows, nor who lacks a block, nor sums of promises."""
    life, repetition, capacity = executor._life, executor._repetition, executor._schedulers.capacity
    life.lacking = lambda: None
    life.lay_out_rows = generation_spans
    repetition.rows_of = lambda requests, live: look_at(requests, live, repetition._eos_ids)
    decide = capacity.schedule

    def schedule(*args, has_guesses, lacking, **more):
        capacity._promises, capacity._last_key = Promises(), None
        return decide(*args, **more)

    object.__setattr__(executor._schedulers, "capacity", _Asking(schedule, capacity.check))


class _Asking:
    def __init__(self, schedule, check):
        self.schedule, self.check = schedule, check


def new_request(choose, number):
    prompt_len, first = choose.randint(1, 25), choose.choice([0, 100, number * 1000])
    num_tokens = choose.randint(1, 30)
    params = SamplingParams(
        max_tokens=num_tokens,
        ignore_eos=choose.random() < 0.5,
        stop=choose.choice([(), (), ("never",)]),
        stop_token_ids=choose.choice([(), (), (OTHER,)]),
        logprobs=choose.choice([None, None, 1]),
    )
    drafts = (number,) * choose.randint(1, 12) if choose.random() < 0.2 else ()
    prompt = tuple(range(first, first + prompt_len))
    spec = RequestSpec(number, prompt, params, max_new_tokens=num_tokens, draft_tokens=drafts)
    checker = StopChecker(params, prompt_len=prompt_len, max_seq_len=60, eos_token_ids=(EOS,), detokenizer=_NO_TEXT)
    return LlmRequest(spec), checker


def serve(seed, *, is_asking):
    """Serve one history; return what every step was, what it got, and what every request became."""
    choose, faults = random.Random(seed), random.Random(seed + 1)
    engine = build(choose, seed)
    executor, log = engine.executor, []
    if is_asking:
        ask_everybody(executor)
    reserve, forward = executor._life.reserve, engine.model_engine.forward

    def noted(step):
        granted = reserve(step)
        log.append((repr(step.scheduled), tuple(step.scheduled.deferrals), granted))
        return granted

    def failing(*args, **more):
        if faults.random() < 0.02:
            raise faults.choice([KeyboardInterrupt, ValueError])
        return forward(*args, **more)

    executor._life.reserve, engine.model_engine.forward = noted, failing
    for number in range(400):
        if number < 40:
            for at in range(choose.choice([0, 0, 1, 1, 3])):
                executor.submit(*new_request(choose, 10 * number + at))
        elif not executor.has_unfinished:
            break
        if executor._live and choose.random() < 0.05:
            executor.abort(choose.choice(sorted(executor._live)))
        try:
            executor.step()
        except KeyboardInterrupt:
            log.append("interrupted")
        executor.check()
        ended = [one.request for one in executor.take_finished()]
        log += [(repr(one), one.generated, one.finish_reason, one.error) for one in ended]
    assert not executor.has_unfinished
    assert engine.num_leaked_blocks == 0
    return log


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_a_loop_that_carries_rows_over_decides_as_one_that_asks_everybody(seed):
    assert serve(seed, is_asking=False) == serve(seed, is_asking=True)


def test_the_loop_that_asks_everybody_would_notice(monkeypatch):
    from engine.executor.decode_rows import DecodeRows

    moved = DecodeRows.moved

    def moved_too_far(rows):
        found = moved(rows)
        found.facts[1] += 1
        return found

    monkeypatch.setattr(DecodeRows, "moved", moved_too_far)
    with pytest.raises(AssertionError):
        serve(3, is_asking=False)

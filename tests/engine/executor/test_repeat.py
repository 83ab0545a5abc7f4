"""The schedulers are left alone only while they would say the same."""

import pytest

from engine import LLM, EngineConfig, SamplingParams, SchedulerConfig

PARAMS = SamplingParams(max_tokens=12, ignore_eos=True)


@pytest.fixture
def asked(monkeypatch):
    """An engine of two places, and the steps in which its schedulers were asked."""
    config = EngineConfig(
        device="cpu", max_seq_len=64, scheduler=SchedulerConfig(max_batch_size=2, max_num_tokens=64, chunking=None)
    )
    with LLM("tiny", config) as llm:
        steps = []
        schedule = llm._executor._schedule
        monkeypatch.setattr(llm._executor, "_schedule", lambda: (steps.append(llm.num_steps), schedule())[1])
        yield llm, steps


def test_a_batch_that_stays_the_same_is_scheduled_once(asked):
    llm, steps = asked
    llm.generate([[1, 2], [3, 4]], PARAMS)
    assert steps == [0, 1], "the prompts, and the first step without them"


def test_an_arrival_and_an_end_are_reasons_to_ask(asked):
    llm, steps = asked
    llm.submit([1, 2], PARAMS)
    for _ in range(4):
        llm.step()
    assert steps == [0, 1]
    llm.submit([3, 4], SamplingParams(max_tokens=3, ignore_eos=True))
    llm.step()
    assert steps[2:] == [4], "somebody has come"
    while llm.has_unfinished:
        llm.step()
        llm.check()
    assert steps[2:] == [4, 5, 7], "the prompt has gone, and then the request"


def test_those_who_wait_for_a_place_change_nothing(asked):
    llm, steps = asked
    for prompt in ([1, 2], [3, 4], [5, 6], [7, 8]):
        llm.submit(prompt, PARAMS)
    outputs = []
    while not outputs:
        outputs += llm.step()
        llm.check()
    assert steps == [0, 1], "two run and two wait, until one ends"


def test_an_abort_ends_the_repetition(asked):
    llm, steps = asked
    first = llm.submit([1, 2], PARAMS)
    llm.submit([3, 4], PARAMS)
    for _ in range(5):
        llm.step()
    llm.abort(first)
    llm.step()
    assert steps == [0, 1, 5]
    llm.check()

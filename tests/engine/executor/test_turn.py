"""Whose turn it is: what a step refuses, and what waits for what."""

import threading

import pytest

from engine import LLM, EngineConfig, SamplingParams, SchedulerConfig
from engine.config import CudaGraphConfig
from engine.errors import ReentryError
from engine.executor.turn import Turn
from engine.probe import Stage

REFUSAL = "an LLM serves one call at a time and a step is running; call it from one thread, never from a probe"
PARAMS = SamplingParams(max_tokens=8, ignore_eos=True)
PROMPTS = ["abc", "de", "f"]


def make(*, overlap=False):
    return LLM(
        "tiny",
        EngineConfig(
            device="cpu",
            max_seq_len=64,
            overlap=overlap,
            scheduler=SchedulerConfig(max_batch_size=4),
            cuda_graph=CudaGraphConfig(batch_sizes=(1, 4), prefill_num_tokens=(16,)),
        ),
    )


class Once:
    """Does something in the first record of a stage from a step on."""

    def __init__(self, stage, step, act):
        self.stage, self.step, self.act = stage, step, act

    def emit(self, stage, step, value):
        if self.act is not None and stage is self.stage and step >= self.step:
            act, self.act = self.act, None
            act()


def in_another_thread(act):
    """Run it to its end in a thread of its own, and return what it raised."""
    raised = []

    def work():
        try:
            act()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return raised


def test_a_step_refuses_every_other_call_of_any_thread_in_words():
    turn = Turn()
    turn.require_idle()
    with turn.any_call, turn.step:
        for act in (turn.require_idle, lambda: turn.between_steps().__enter__()):
            with pytest.raises(ReentryError) as refused:
                act()
            assert str(refused.value) == REFUSAL
            assert [str(error) for error in in_another_thread(act)] == [REFUSAL]
    with turn.between_steps(), turn.between_steps():
        turn.require_idle()


def test_only_the_thread_of_a_step_may_change_its_observer_meanwhile():
    turn = Turn()
    entered = []

    def enter():
        with turn.unless_elsewhere():
            entered.append(threading.current_thread())

    with turn.any_call, turn.step:
        enter()
        assert [str(error) for error in in_another_thread(enter)] == [REFUSAL]
    assert in_another_thread(enter) == []
    assert len(entered) == 2


def test_a_step_waits_for_a_short_call_of_another_thread():
    turn, order = Turn(), []

    def step():
        turn.require_idle()
        with turn.any_call, turn.step:
            order.append("step")

    thread = threading.Thread(target=step)
    with turn.between_steps():
        thread.start()
        thread.join(timeout=0.05)
        order.append("short call")
    thread.join()
    assert order == ["short call", "step"]


@pytest.mark.parametrize("name", ["check", "release_graphs", "close", "set_probe"])
@pytest.mark.parametrize("stage", [Stage.SCHEDULED, Stage.GRAPH_CHOSEN, Stage.COPIED, Stage.METADATA, Stage.COMMITTED])
def test_a_call_from_another_thread_in_the_middle_of_a_step_leaves_its_requests_alone(stage, name):
    raised = []
    with make() as llm:
        expected = [out.token_ids for out in llm.generate(PROMPTS, PARAMS)]
        act = {"set_probe": lambda: llm.set_probe(None)}.get(name) or getattr(llm, name)
        llm.set_probe(Once(stage, llm.num_steps + 3, lambda: raised.extend(in_another_thread(act))))
        outputs = llm.generate(PROMPTS, PARAMS)
        assert [str(error) for error in raised] == [REFUSAL]
        assert all(isinstance(error, ReentryError) for error in raised)
        assert [(out.token_ids, out.error) for out in outputs] == [(ids, None) for ids in expected]
        assert llm.graphs.captured_keys
        llm.check()


def test_a_probe_may_detach_itself():
    with make() as llm:
        llm.set_probe(Once(Stage.GRAPH_CHOSEN, 2, lambda: llm.set_probe(None)))
        assert [len(out.token_ids) for out in llm.generate(PROMPTS, PARAMS)] == [8, 8, 8]
        assert llm.probe is None


def test_a_probe_cannot_call_the_engine_while_an_abort_reads_the_last_samples():
    with make(overlap=True) as llm:
        expected = [out.token_ids for out in llm.generate(PROMPTS, PARAMS)]
        first, *others = [llm.submit(prompt, PARAMS) for prompt in PROMPTS]
        llm.step()
        llm.step()
        llm.set_probe(Once(Stage.SAMPLED, 0, llm.step))
        with pytest.raises(ReentryError, match="a step is running"):
            llm.abort(first)
        llm.abort(first)
        outputs = {out.request_id: out for _ in range(20) for out in llm.step()}
        assert outputs[first].finish_reason == "abort"
        assert [outputs[other].token_ids for other in others] == expected[1:]
        llm.check()

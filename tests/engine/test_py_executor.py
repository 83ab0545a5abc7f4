"""The step loop: a step commits or leaves no trace, whatever is thrown at it."""

import dataclasses
import signal

import pytest

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.probe import Stage
from engine.py_executor import uninterrupted

CONFIG = EngineConfig(
    device="cpu",
    max_seq_len=64,
    scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=64, chunking="fcfs"),
    cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4)),
)
PROMPTS = ["hello", "a longer prompt than the others, in two chunks", "x"]


class Bomb:
    """A probe that raises once, at one stage of one step."""

    def __init__(self, stage: Stage, step: int, error: BaseException) -> None:
        self.at = (stage, step)
        self.error: BaseException | None = error

    def emit(self, stage: Stage, step: int, value: object) -> None:
        if (stage, step) == self.at and self.error is not None:
            error, self.error = self.error, None
            raise error


@pytest.fixture(scope="module")
def expected():
    with LLM("tiny", CONFIG) as llm:
        return [out.token_ids for out in llm.generate(PROMPTS, SamplingParams(max_tokens=12))]


def run_through(llm, error_type):
    ids = [llm.submit(prompt, SamplingParams(max_tokens=12)) for prompt in PROMPTS]
    outputs, raised = {}, 0
    while llm.has_unfinished:
        try:
            outputs |= {out.request_id: out for out in llm.step()}
        except error_type:
            raised += 1
            llm.check()
    llm.check()
    assert llm._resources.kv_cache.num_free_blocks == llm._resources.kv_cache.num_blocks - 1, "only the dummy's"
    return [outputs[i] for i in ids], raised


@pytest.mark.parametrize("stage", [s for s in Stage if s is not Stage.COMMITTED])
@pytest.mark.parametrize("step", [0, 1, 5])
@pytest.mark.parametrize("overlap", [False, True])
def test_an_interrupt_at_any_stage_leaves_every_request_runnable(expected, stage, step, overlap):
    with LLM("tiny", dataclasses.replace(CONFIG, overlap=overlap)) as llm:
        llm.set_probe(Bomb(stage, step, KeyboardInterrupt()))
        outputs, raised = run_through(llm, KeyboardInterrupt)
    assert raised == 1
    assert [out.token_ids for out in outputs] == expected


@pytest.mark.parametrize("stage", [Stage.SCHEDULED, Stage.PACKED, Stage.RAN, Stage.SAMPLED])
@pytest.mark.parametrize("overlap", [False, True])
def test_an_exception_of_a_probe_reaches_the_caller_unchanged_and_changes_no_result(expected, stage, overlap):
    with LLM("tiny", dataclasses.replace(CONFIG, overlap=overlap)) as llm:
        llm.set_probe(Bomb(stage, 3, ZeroDivisionError("of the probe")))
        outputs, raised = run_through(llm, ZeroDivisionError)
    assert raised == 1
    assert [out.token_ids for out in outputs] == expected


def test_an_exception_at_commit_comes_after_the_step_is_final(expected):
    with LLM("tiny", CONFIG) as llm:
        llm.set_probe(Bomb(Stage.COMMITTED, 3, ZeroDivisionError("of the probe")))
        outputs, raised = run_through(llm, ZeroDivisionError)
    assert raised == 1
    assert [out.token_ids for out in outputs] == expected


def test_a_failing_step_ends_only_its_own_requests(expected):
    with LLM("tiny", CONFIG) as llm:
        first = llm.submit(PROMPTS[0], SamplingParams(max_tokens=12))
        llm.step()
        forward = llm._model_engine.forward

        def fail(*args, **kwargs):
            llm._model_engine.forward = forward
            message = "device on fire"
            raise RuntimeError(message)

        llm._model_engine.forward = fail
        (failed,) = llm.step()
        assert (failed.request_id, failed.finish_reason) == (first, "error")
        assert failed.error == "RuntimeError: device on fire"
        assert len(failed.token_ids) == 1
        llm.check()
        outputs, _raised = run_through(llm, ())
    assert [out.token_ids for out in outputs] == expected


@pytest.mark.parametrize("at", ["forward", "read"])
def test_a_failing_step_with_another_one_open_ends_only_its_own_requests(expected, at):
    with LLM("tiny", dataclasses.replace(CONFIG, overlap=True)) as llm:
        first = llm.submit(PROMPTS[0], SamplingParams(max_tokens=12))
        llm.step()
        llm.step()
        message = "device on fire"

        def fail(*args, **kwargs):
            setattr(*restore)
            raise RuntimeError(message)

        owner, name = (llm._model_engine, "forward") if at == "forward" else (llm._executor, "_read_samples")
        restore = (owner, name, getattr(owner, name))
        setattr(owner, name, fail)
        outputs = []
        while not outputs:
            outputs = llm.step()
        (failed,) = outputs
        assert (failed.request_id, failed.finish_reason) == (first, "error")
        assert failed.error == "RuntimeError: device on fire"
        llm.check()
        outputs, _raised = run_through(llm, ())
    assert [out.token_ids for out in outputs] == expected


def test_the_probe_sees_ten_stages_in_order_and_changes_nothing(expected):
    seen: list[tuple[int, Stage]] = []

    class Watcher:
        def emit(self, stage: Stage, step: int, value: object) -> None:
            seen.append((step, stage))

    with LLM("tiny", CONFIG) as llm:
        llm.set_probe(Watcher())
        outputs, _raised = run_through(llm, ())
        num_steps = llm.num_steps
    assert [out.token_ids for out in outputs] == expected
    assert seen == [(step, stage) for step in range(num_steps) for stage in Stage]


def test_an_interrupt_inside_bookkeeping_is_held_back_until_it_is_done():
    done = []

    def interrupt_in_the_middle() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("the whole block")

    with pytest.raises(KeyboardInterrupt):
        interrupt_in_the_middle()
    assert done == ["the whole block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

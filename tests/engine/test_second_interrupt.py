"""A second Ctrl-C while an interrupted call gives its requests up: they are gone, and only then it comes out."""

import dataclasses
import signal
import sys
from pathlib import Path

import pytest

import engine.llm
from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams
from engine.probe import Stage

CONFIG = EngineConfig(device="cpu", max_seq_len=64, cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4)))
TOKENS = SamplingParams(max_tokens=8, ignore_eos=True)
PROMPTS = ["abc", "de", "hello"]
SOURCE = str(Path(engine.llm.__file__).parent)


class TwoInterrupts:
    """A probe that sends Ctrl-C at one stage of one step, and again so many lines of the engine further on.

    Lines are those of the calls that begin after the first one.
    """

    def __init__(self, stage, step, num_lines):
        self.at, self.num_left, self.num_sent = (stage, step), num_lines, 0

    def emit(self, stage, step, value):
        if (stage, step) == self.at and not self.num_sent:
            self.num_sent = 1
            sys.settrace(self._trace)
            signal.raise_signal(signal.SIGINT)

    def _trace(self, frame, event, _value):
        file = frame.f_code.co_filename
        if not file.startswith(SOURCE) or file.endswith("interrupts.py"):  # what holds it back has its own tests
            return None
        self.num_left -= event == "line"
        if event == "line" and self.num_left == 0:
            sys.settrace(None)
            self.num_sent = 2
            signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)
        return self._trace


def is_waited_for_by_nobody(llm):
    """Whether only what ``submit`` gave an id for is left; and run that to its end."""
    llm.check()
    left = [live.request.spec.params for live in llm._executor._live.values()]
    while llm.has_unfinished:
        llm.step()
    llm.check()
    return not llm._boxes and TOKENS not in left


def test_a_second_interrupt_comes_out_when_every_request_is_given_up(monkeypatch):
    with LLM("tiny", CONFIG) as llm:
        real, aborted = llm._executor.abort, []

        def abort(request_id):
            signal.raise_signal(signal.SIGINT)
            real(request_id)
            aborted.append(request_id)

        monkeypatch.setattr(llm._executor, "abort", abort)
        llm.set_probe(TwoInterrupts(Stage.RAN, llm.num_steps + 2, -1))
        with pytest.raises(KeyboardInterrupt) as raised:
            llm.generate(PROMPTS, TOKENS)
        sys.settrace(None)
        assert len(aborted) == len(PROMPTS)
        assert isinstance(raised.value.__context__, KeyboardInterrupt), "the first one"
        llm.set_probe(None)
        assert is_waited_for_by_nobody(llm)


def num_lines_of(call, llm, stage):
    """Count the lines from the first Ctrl-C to the end of the call."""
    probe = TwoInterrupts(stage, llm.num_steps + 2, 1 << 30)
    llm.set_probe(probe)
    with pytest.raises(KeyboardInterrupt):
        call(llm)
    sys.settrace(None)
    llm.set_probe(None)
    return (1 << 30) - probe.num_left


def generate(llm):
    llm.generate(PROMPTS, TOKENS)


def stream(llm):
    llm.submit("abc", dataclasses.replace(TOKENS, max_tokens=2))
    "".join(llm.stream("hello", TOKENS))


@pytest.mark.parametrize("stage", [Stage.SCHEDULED, Stage.RAN, Stage.COMMITTED])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("call", [generate, stream])
def test_a_second_interrupt_at_any_line_leaves_no_request_behind(call, stage, overlap):
    with LLM("tiny", dataclasses.replace(CONFIG, overlap=overlap)) as llm:
        expected = [out.token_ids for out in llm.generate(PROMPTS, TOKENS)]
        most = num_lines_of(call, llm, stage)
        assert is_waited_for_by_nobody(llm)
        num_twice = 0
        for num_lines in [*range(1, min(most, 25)), *range(25, most, 29)]:
            probe = TwoInterrupts(stage, llm.num_steps + 2, num_lines)
            llm.set_probe(probe)
            with pytest.raises(KeyboardInterrupt):
                call(llm)
            sys.settrace(None)
            llm.set_probe(None)
            num_twice += probe.num_sent == 2
            assert is_waited_for_by_nobody(llm), f"after {num_lines} of {most} lines"
        assert num_twice > 20
        assert [out.token_ids for out in llm.generate(PROMPTS, TOKENS)] == expected


def test_a_probe_that_fails_while_requests_are_given_up_leaves_none_behind():
    with LLM("tiny", dataclasses.replace(CONFIG, overlap=True)) as llm:
        first = llm.num_steps + 2

        class Probe:
            num_failed = 0

            def emit(self, stage, step, value):
                if (stage, step) == (Stage.SCHEDULED, first):
                    raise KeyboardInterrupt
                if stage is Stage.SAMPLED and step == first - 1:
                    self.num_failed += 1
                    if self.num_failed == 1:
                        raise ZeroDivisionError

        probe = Probe()
        llm.set_probe(probe)
        with pytest.raises(ZeroDivisionError):
            llm.generate(PROMPTS, TOKENS)
        assert probe.num_failed == 2
        assert is_waited_for_by_nobody(llm)


def test_a_submission_interrupted_twice_enqueues_nothing(monkeypatch):
    with LLM("tiny", CONFIG) as llm:
        real_enqueue, real_withdraw = llm._enqueue, llm._withdraw
        sent = []

        def enqueue(*args):
            real_enqueue(*args)
            raise KeyboardInterrupt

        def withdraw(request_id):
            sent.append(request_id)
            if len(sent) == 1:
                raise KeyboardInterrupt
            real_withdraw(request_id)

        monkeypatch.setattr(llm, "_enqueue", enqueue)
        monkeypatch.setattr(llm, "_withdraw", withdraw)
        with pytest.raises(KeyboardInterrupt):
            llm.submit("abc", TOKENS)
        assert sent == [sent[0]] * 2
        assert not llm.has_unfinished

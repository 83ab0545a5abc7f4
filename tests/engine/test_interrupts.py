"""Interrupts, probes and callers in each other's way: nothing is lost, and no later token changes."""

import dataclasses
import itertools
import random
import signal
import sys

import pytest

import engine.llm
from engine import LLM, CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig, interrupts
from engine.attention import paged
from engine.errors import ConfigError, ReentryError
from engine.interrupts import listening, uninterrupted
from engine.probe import Stage

CONFIG = EngineConfig(device="cpu", max_seq_len=64, cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4)))
TOKENS = SamplingParams(max_tokens=8)


@pytest.fixture
def llm():
    with LLM("tiny", CONFIG) as llm:
        yield llm
        llm.check()


class At:
    """A probe that acts once, at one stage of one step."""

    def __init__(self, stage, step, action):
        self.at, self.action = (stage, step), action

    def emit(self, stage, step, value):
        if (stage, step) == self.at and self.action is not None:
            action, self.action = self.action, None
            action()


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("call", range(24))
def test_an_interrupt_between_two_copies_of_the_metadata_changes_no_later_token(monkeypatch, llm, call):
    prompts = ["abc", "de"]
    expected = [out.token_ids for out in llm.generate(prompts, TOKENS)]
    counter, real = itertools.count(), paged.PinnedRing.stage

    def stage(self, values):
        if next(counter) == call:
            raise KeyboardInterrupt
        return real(self, values)

    with monkeypatch.context() as patch:
        patch.setattr(paged.PinnedRing, "stage", stage)
        try:
            llm.generate(["zzz", "q", "rr"], TOKENS)
        except KeyboardInterrupt:
            llm.check()
    assert [out.token_ids for out in llm.generate(prompts, TOKENS)] == expected
    assert [out.token_ids for out in llm.generate(prompts[:1], TOKENS)] == expected[:1]


@pytest.mark.parametrize("stage", [Stage.RAN, Stage.SAMPLED])
def test_an_undone_step_leaves_no_mark_in_a_repetition_penalty(llm, stage):
    params = SamplingParams(max_tokens=10, repetition_penalty=1.4)
    expected = llm.generate("q", params)[0].token_ids
    for step in range(1, 8):
        llm.set_probe(At(stage, llm.num_steps + step, interrupt))
        llm.submit("q", params)
        outputs = []
        while llm.has_unfinished:
            try:
                outputs += llm.step()
            except KeyboardInterrupt:
                continue
        assert outputs[0].token_ids == expected


def test_a_stream_gets_its_end_whoever_runs_the_step(llm):
    expected = llm.generate("hello", TOKENS)[0].text
    stream = llm.stream("hello", TOKENS)
    first = next(stream)
    llm.generate("abc", SamplingParams(max_tokens=20))
    assert first + "".join(stream) == expected
    stream = llm.stream("hello", TOKENS)
    first = next(stream)
    while llm.has_unfinished:
        assert llm.step() == [], "the output belongs to the stream"
    assert first + "".join(stream) == expected
    pairs = itertools.zip_longest(llm.stream("hello", TOKENS), llm.stream("abc", TOKENS), fillvalue="")
    assert "".join(pair[0] for pair in pairs) == expected


def test_a_stream_whose_request_is_aborted_ends(llm):
    stream = llm.stream("hello", TOKENS)
    first = next(stream)
    (request_id,) = llm._executor._live
    llm.abort(request_id)
    assert llm.step() == []
    assert first + "".join(stream) == llm.generate("hello", SamplingParams(max_tokens=1))[0].text


def test_the_output_of_an_abandoned_stream_that_ended_in_an_abort_is_handed_to_nobody():
    with LLM("tiny", dataclasses.replace(CONFIG, overlap=True)) as llm:
        stream = llm.stream("hello", SamplingParams(max_tokens=4, ignore_eos=True))
        next(stream)
        other = llm.submit("abc", SamplingParams(max_tokens=20, ignore_eos=True))
        while len(llm._executor._live) == 2 and not llm._executor._live[0].request.state.name.endswith("TO_COMPLETE"):
            llm.step()
        llm.abort(other)  # reads what is on its way: the stream's last token
        assert not llm._executor.is_live(0)
        stream.close()
        assert [output.request_id for output in llm.step()] == [other]
        assert not llm._boxes
        assert not llm.has_unfinished


def test_an_interrupt_while_an_output_is_handed_out_loses_nothing(monkeypatch, llm):
    request_id = llm.submit("hello", SamplingParams(max_tokens=1))
    with monkeypatch.context() as patch:
        patch.setattr(engine.llm.PyExecutor, "take_finished", lambda self: interrupt())
        with pytest.raises(KeyboardInterrupt):
            llm.step()
    assert [out.request_id for out in llm.step()] == [request_id]


def test_an_interrupt_between_two_submissions_of_generate_leaves_no_orphan(monkeypatch, llm):
    real, counter = LLM._enqueue, itertools.count()

    def enqueue(self, *args):
        if next(counter) == 1:
            raise KeyboardInterrupt
        return real(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(LLM, "_enqueue", enqueue)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["a", "b", "c"], TOKENS)
    assert not llm.has_unfinished


@pytest.mark.parametrize("stage", list(Stage))
def test_a_call_from_inside_a_probe_is_refused_and_changes_no_token(llm, stage):
    expected = llm.generate("hello", TOKENS)[0].token_ids
    request_id = llm.submit("hello", TOKENS)
    calls = (llm.step, lambda: llm.generate("x"), lambda: llm.abort(request_id), lambda: llm.submit("y"))
    for act in (*calls, llm.check, llm.release_graphs, llm.close):
        llm.set_probe(At(stage, llm.num_steps, act))
        with pytest.raises(ReentryError, match="an LLM serves one call at a time"):
            llm.step()
    llm.set_probe(None)
    (output,) = [out for _ in range(20) for out in llm.step()]
    assert output.token_ids == expected


def test_what_is_no_probe_is_refused_at_once(llm):
    with pytest.raises(ConfigError, match=r"a probe needs a method emit\(stage, step, value\), got 5"):
        llm.set_probe(5)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("fault", [KeyboardInterrupt, RuntimeError])
def test_a_step_whose_undoing_was_cut_off_is_undone_before_the_next(monkeypatch, graphs, fault):
    config = EngineConfig(
        device="cpu", max_seq_len=64, cuda_graph=CudaGraphConfig(enabled=graphs, batch_sizes=(1, 2, 4))
    )
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    with LLM("tiny", config) as llm:
        expected = llm.generate("abc", params)[0].token_ids

        def raises():
            raise fault

        llm.set_probe(At(Stage.RAN, llm.num_steps + 6, raises))
        llm.submit("abc", params)
        outputs, real = [], llm._executor._roll_back
        while llm.has_unfinished:
            try:
                with monkeypatch.context() as patch:
                    patch.setattr(llm._executor, "_roll_back", interrupt)  # the second Ctrl-C, before it began
                    outputs += llm.step()
            except (KeyboardInterrupt, RuntimeError):
                assert not llm._executor._open[-1].is_launched
                assert llm._executor._roll_back == real
                outputs += llm.step()
                llm.check()
        assert outputs[0].token_ids == expected


def test_a_request_can_be_aborted_after_an_undoing_that_was_cut_off(monkeypatch, llm):
    request_id = llm.submit("abc", TOKENS)
    llm.step()
    llm.set_probe(At(Stage.RAN, llm.num_steps, interrupt))
    with monkeypatch.context() as patch:
        patch.setattr(llm._executor, "_roll_back", interrupt)
        with pytest.raises(KeyboardInterrupt):
            llm.step()
    llm.abort(request_id)
    llm.check()
    assert [output.finish_reason for output in llm.step()] == ["abort"]


def test_a_submission_that_is_interrupted_enqueues_nothing(monkeypatch, llm):
    real = llm._enqueue

    def enqueue_then_interrupt(*args):
        real(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(llm, "_enqueue", enqueue_then_interrupt)
        with pytest.raises(KeyboardInterrupt):
            llm.submit("abc", TOKENS)
    assert not llm.has_unfinished
    assert llm.submit("abc", TOKENS) >= 0


@pytest.mark.parametrize("action", range(0, 60, 7))
def test_a_late_device_loses_no_action_to_a_signal(action):
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    config = EngineConfig(device="cpu", max_seq_len=64, kv_cache=KVCacheConfig(tokens_per_block=4))
    with LLM("tiny", config, stream_lag=3) as llm:
        expected = [out.token_ids for out in llm.generate(["abc", "de"], params)]
        stream, counter = llm._executor._samples.stream, itertools.count()
        launch = stream.launch

        def signalled(fn):
            if next(counter) == action:
                launch(lambda: (signal.raise_signal(signal.SIGINT), fn()))
            else:
                launch(fn)

        stream.launch = signalled
        for prompt in ("abc", "de"):
            llm.submit(prompt, params)
        outputs, num_interrupts = [], 0
        while llm.has_unfinished:
            try:
                outputs += llm.step()
            except KeyboardInterrupt:
                num_interrupts += 1
        assert num_interrupts == 1
        assert [output.token_ids for output in sorted(outputs, key=lambda output: output.request_id)] == expected
        llm.check()


def _interrupted_and_broken():
    signal.raise_signal(signal.SIGINT)
    raise ZeroDivisionError


def test_a_signal_is_not_lost_when_the_block_that_held_it_back_raises():
    with pytest.raises(KeyboardInterrupt) as raised, uninterrupted():
        _interrupted_and_broken()
    assert isinstance(raised.value.__context__, ZeroDivisionError)


@pytest.mark.parametrize("call", [0, 1])
def test_a_signal_while_the_handler_is_exchanged_comes_out_and_the_old_handler_is_back(monkeypatch, call):
    before, real, counter = signal.getsignal(signal.SIGINT), signal.signal, itertools.count()

    def exchange(number, handler):
        at = next(counter)
        if at == call == 1:
            signal.raise_signal(signal.SIGINT)
        real(number, handler)
        if at == call == 0:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(signal, "signal", exchange)
        with pytest.raises(KeyboardInterrupt), listening():
            pass
    assert signal.getsignal(signal.SIGINT) is before
    assert not interrupts._current


class AtLine:
    """Sends a Ctrl-C when so many lines of one file have run."""

    def __init__(self, file, num_lines):
        self.file, self.num_left = file, num_lines

    def __enter__(self):
        sys.settrace(self._trace)

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, event, _value):
        if not frame.f_code.co_filename.endswith(self.file):
            return None
        self.num_left -= event == "line"
        if event == "line" and not self.num_left:
            sys.settrace(None)
            signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)
        return self._trace


@pytest.mark.parametrize(
    "file",
    [
        "scheduler/promises.py",
        "scheduler/capacity.py",
        "scheduler/deferrals.py",
        "executor/decode_rows.py",
        "executor/decode_batch.py",
        "executor/repeat.py",
        "executor/live.py",
        "executor/lifecycle.py",
        "sampling/stopping.py",
        "models/tokenizer.py",
        "kv_cache/reuse_tree.py",
        "kv_cache/manager.py",
    ],
)
def test_an_interrupt_at_any_line_leaves_nothing_half_remembered(file):
    config = dataclasses.replace(
        CONFIG,
        overlap=True,
        scheduler=SchedulerConfig(max_batch_size=4),
        kv_cache=KVCacheConfig(tokens_per_block=4, num_blocks=40),
    )
    params = [SamplingParams(max_tokens=count, stop=stop) for count, stop in ((3, ()), (9, ("zz",)), (17, ()))]
    choose = random.Random(file)
    with LLM("tiny", config) as llm:
        for prompt in ("hello", "abcabc", "zz"):
            expected = {one: llm.generate(prompt, one)[0] for one in params}
            asked = {llm.submit(prompt, one): one for one in params * 2}
            outputs = []
            while llm.has_unfinished:
                try:
                    with AtLine(file, choose.choice((1, 2, 3, 5, 8, 13, 30, 60))):
                        outputs += llm.step()
                except KeyboardInterrupt:
                    llm.check()
                if choose.random() < 0.5:
                    outputs += llm.step()
                llm.check()
            found = {output.request_id: (output.token_ids, output.text) for output in outputs}
            assert found == {i: (expected[one].token_ids, expected[one].text) for i, one in asked.items()}


def test_an_interrupt_of_a_stream_that_reads_its_text_loses_none_of_it(llm):
    expected = llm.generate("hello", TOKENS)[0].text
    for line in range(1, 12):
        request_id = llm.submit("hello", TOKENS)
        llm.step()
        llm.step()
        try:
            with AtLine("sampling/stopping.py", line):
                llm._executor.text_so_far(request_id)
        except KeyboardInterrupt:
            llm.check()
        outputs = []
        while llm.has_unfinished:
            outputs += llm.step()
        assert outputs[0].text == expected

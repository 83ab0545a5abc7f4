"""A recorded run is run again: the same requests at the same steps, or one clear error."""

import dataclasses

import pytest

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.errors import TraceError
from engine.llm import LLM
from lab.counterfactuals.search import counterfactual
from lab.counterfactuals.workload import Abort, Workload, cover
from lab.session import Session, attach
from lab.snapshot import DeferralView, equal
from lab.trace import Trace
from tests.lab.tiny_runs import TINY_CONFIG


def rerun(trace, i=-1):
    workload = Workload.of(trace, i)
    return workload, workload.run(workload.config)


def same_steps(left, right):
    return all(equal(a.schedule, b.schedule) and equal(a.path, b.path) for a, b in zip(left, right, strict=True))


def test_a_saved_trace_is_run_again_step_by_step(full_trace, tmp_path):
    loaded = Trace.load(full_trace.save(tmp_path / "x.gz"))
    workload, proof = rerun(loaded)
    assert proof is not None
    assert proof.step == len(full_trace) - 1
    assert same_steps(proof.trace.steps, full_trace.steps)
    assert [step.outcome.tokens for step in proof.trace.steps] == [s.outcome.tokens for s in full_trace.steps]
    assert workload.config == TINY_CONFIG


def test_a_request_that_had_to_wait_is_submitted_when_it_was():
    config = EngineConfig(
        device="cpu",
        max_seq_len=64,
        scheduler=SchedulerConfig(max_batch_size=2, max_num_tokens=32),
        kv_cache=KVCacheConfig(num_blocks=8),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2)),
    )
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    with Session("tiny", prompts=["one", "two", "three", (3, "four")], config=config, params=params) as session:
        trace = session.run()
    assert [request.arrival_step for request in trace.header.requests][2] > 0
    workload, proof = rerun(trace)
    assert [arrival[0] for arrival in workload.arrivals] == [0, 0, 0, 3]
    assert proof is not None
    assert same_steps(proof.trace.steps, trace.steps)


def test_a_trace_of_an_engine_that_ran_before_starts_at_its_own_first_step():
    with LLM("tiny", TINY_CONFIG) as llm:
        llm.generate(["before"], SamplingParams(max_tokens=4))
        with attach(llm) as recorder:
            llm.generate(["abc", "de"], SamplingParams(max_tokens=4, ignore_eos=True))
        trace = recorder.trace
    assert trace.steps[0].step > 0
    _workload, proof = rerun(trace)
    assert proof is not None
    assert proof.step == len(trace) - 1


def test_a_step_whose_work_depends_on_what_came_before_is_not_run_again():
    with LLM("tiny", TINY_CONFIG) as llm:
        llm.submit("a prompt from before the recording", SamplingParams(max_tokens=6, ignore_eos=True))
        llm.step()
        with attach(llm) as recorder:
            llm.step()
        trace = recorder.trace
    _workload, proof = rerun(trace, 0)
    assert proof is not None, "the request is known, so its second step can be run"
    cut = dataclasses.replace(trace.header, requests=())
    with pytest.raises(TraceError, match="it holds no prompts; record it with attach"):
        Workload.of(Trace(cut, trace.steps), 0)


def test_what_cannot_be_run_again_says_so_in_one_line(full_trace):
    header = full_trace.header
    others = dataclasses.replace(header.requests[0], request_id=99)
    cases = {
        "it is redacted: its prompts are gone; record it without redact": full_trace.redact(),
        "it holds no engine configuration": Trace(dataclasses.replace(header, config={}), full_trace.steps),
        "its first 7 steps were dropped": Trace(dataclasses.replace(header, num_dropped=7), full_trace.steps),
        "its configuration is not one of this Stepscope": Trace(
            dataclasses.replace(header, config={**header.config, "later": 1}), full_trace.steps
        ),
        "it has no prompt for request 0": Trace(dataclasses.replace(header, requests=(others,)), full_trace.steps),
        "it was recorded with weights abc, and tiny has": Trace(
            dataclasses.replace(header, model=dataclasses.replace(header.model, weight_hash="abc")), full_trace.steps
        ),
    }
    for params, words in (
        ({"later": 1}, "the parameters of request 0 are not those of this Stepscope (SamplingParams"),
        ({"max_tokens": 0}, "(SamplingParams.max_tokens must be an integer of at least 1, got 0)"),
    ):
        changed = [dataclasses.replace(request, params={**request.params, **params}) for request in header.requests]
        cases[words] = Trace(dataclasses.replace(header, requests=tuple(changed)), full_trace.steps)
    gone = dataclasses.replace(header, model=dataclasses.replace(header.model, name="/no/such/model.gguf"))
    cases["no file or folder '/no/such/model.gguf'"] = Trace(gone, full_trace.steps)
    elsewhere = dataclasses.replace(header, config={**header.config, "device": "cuda:7"})
    cases["here: it was recorded on 'cuda:7', and device 'cuda:7' needs a"] = Trace(elsewhere, full_trace.steps)
    twice = dataclasses.replace(header, requests=header.requests * 2)
    cases["two of its requests have one id"] = Trace(twice, full_trace.steps)
    for words, trace in cases.items():
        with pytest.raises(TraceError, match="this trace cannot be run again") as caught:
            Workload.of(trace, 0)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def group(header, name, **fields):
    return dataclasses.replace(header, config={**header.config, name: {**header.config[name], **fields}})


def every_request(header, **fields):
    return dataclasses.replace(header, requests=tuple(dataclasses.replace(one, **fields) for one in header.requests))


def test_what_the_engine_refuses_here_is_an_error_of_the_trace(full_trace):
    header = full_trace.header
    cases = {
        "GiB are free; lower KVCacheConfig.num_blocks": group(header, "kv_cache", num_blocks=2**26),
        "the KV pool must hold one sequence of max_seq_len=128": group(header, "kv_cache", num_blocks=1),
        "max_seq_len": dataclasses.replace(header, config={**header.config, "max_seq_len": 4}),
        "prompt token 0 must be an integer in [0, 259), got 1000000": every_request(header, prompt_token_ids=(10**6,)),
        "a prompt must hold at least one token": every_request(header, prompt_token_ids=()),
        "an arrival step must be an integer of at least 0, got -5": every_request(header, arrival_step=-5),
    }
    for words, changed in cases.items():
        with pytest.raises(TraceError, match="this trace cannot be run again here: ") as caught:
            counterfactual(Trace(changed, full_trace.steps), 0)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_no_name_is_not_the_recorded_name(full_trace):
    with pytest.raises(TraceError, match="cannot be run again here: no model ''"):
        Workload.of(full_trace, 0, "")


def test_an_aborted_request_is_aborted_again_after_the_same_work():
    params = SamplingParams(max_tokens=9, ignore_eos=True)
    with LLM("tiny", TINY_CONFIG) as llm, attach(llm) as recorder:
        first, _second = llm.submit("first", params), llm.submit("second", params)
        for _ in range(3):
            llm.step()
        llm.abort(first)
        llm.submit("third", params)
        while llm.has_unfinished:
            llm.step()
        trace = recorder.trace
    eager = [at for at, step in enumerate(trace.steps) if step.graph.path == "eager"]
    assert eager[-1] == 3, "the step in which the third joins, after the abort"
    workload, proof = rerun(trace)
    assert workload.aborts == {0: Abort(end=len("first") + 2, num_steps=0)}
    assert proof is not None
    assert same_steps(proof.trace.steps, trace.steps)
    answer = counterfactual(trace, eager[-1])
    assert [change.name for change in answer.change] == ["add_prefill_bucket"]
    assert answer.proof is not None
    covered = cover(trace, eager, answer.proof)
    assert (covered.num_steps, covered.num_gone) == (len(eager), 0)


def test_when_all_that_runs_is_aborted_the_next_ones_follow():
    params = SamplingParams(max_tokens=9, ignore_eos=True)
    with LLM("tiny", TINY_CONFIG) as llm, attach(llm) as recorder:
        gone = llm.submit("first", params)
        llm.step()
        llm.abort(gone)
        assert [output.finish_reason for output in llm.step()] == ["abort"]
        llm.submit("second", params)
        while llm.has_unfinished:
            llm.step()
        trace = recorder.trace
    _workload, proof = rerun(trace)
    assert proof is not None
    assert same_steps(proof.trace.steps, trace.steps)


def test_a_request_that_is_aborted_while_it_is_put_off_keeps_its_place_until_then():
    config = dataclasses.replace(
        TINY_CONFIG, scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=16, chunking="fcfs", chunk_unit=4)
    )
    with LLM("tiny", config) as llm, attach(llm) as recorder:
        llm.submit("a" * 60, SamplingParams(max_tokens=4, ignore_eos=True))
        for _ in range(2):
            llm.step()
        trace = recorder.trace
    step = trace.steps[-1]
    waiting = dataclasses.replace(
        step,
        step=2,
        schedule=dataclasses.replace(step.schedule, spans=(), deferrals=(DeferralView(0, "ROW_BUDGET", 1, 0),)),
    )
    other = dataclasses.replace(step, step=3, schedule=dataclasses.replace(step.schedule, spans=(), deferrals=()))
    put_off = Trace(trace.header, (*trace.steps, waiting, other))
    assert Workload.of(put_off, 0).aborts == {0: Abort(end=32, num_steps=1)}
    assert Workload.of(trace, 0).aborts == {}, "it ran to the end of the recording"

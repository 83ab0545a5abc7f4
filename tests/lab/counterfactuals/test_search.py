"""Counterfactuals of real runs: the change is proved, and nothing smaller of the stated set works."""

import dataclasses
import itertools

import pytest

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.errors import TraceError
from engine.reasons import FallOff
from lab.counterfactuals import search
from lab.counterfactuals.changes import CHANGES, variations
from lab.counterfactuals.search import _facts, counterfactual
from lab.counterfactuals.workload import Workload
from lab.reasons import GRAPH_PATHS
from lab.session import Session
from lab.trace import Trace


def record(*, prompts=3, sampling=None, arrivals=None, compiled=False, release=False, drafts=(), **graphs):
    config = EngineConfig(
        device="cpu",
        max_seq_len=64,
        torch_compile=compiled,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=32),
        kv_cache=KVCacheConfig(num_blocks=16),
        cuda_graph=CudaGraphConfig(**graphs),
    )
    params = SamplingParams(**({"max_tokens": 3, "ignore_eos": True} | (sampling or {})))
    steps = arrivals or [0] * prompts
    work = [(step, [5, 6, 7 + at], params, drafts) for at, step in enumerate(steps)]
    with Session("tiny", prompts=work, config=config, mode="light") as session:
        if release:
            session.llm.release_graphs()
        return session.run()


# reason: how a run meets it, and the names of the smallest change that cures it.
MET_BY = {
    FallOff.GRAPHS_DISABLED: ({"enabled": False}, ["graphs_on"]),
    FallOff.ABOVE_LARGEST_BUCKET: ({"batch_sizes": (1, 2)}, ["add_bucket"]),
    FallOff.NO_EXACT_BUCKET_PADDING_OFF: ({"batch_sizes": (2, 4), "enable_padding": False}, ["padding_on"]),
    FallOff.SAMPLER_MODE_NOT_CAPTURED: (
        {"batch_sizes": (4,), "sample_modes": ("greedy",), "sampling": {"temperature": 1.0}},
        ["capture_mode"],
    ),
    FallOff.HAS_CONTEXT_UNPROMOTED: ({"batch_sizes": (4,)}, ["add_prefill_bucket"]),
    FallOff.ABOVE_LARGEST_PREFILL_BUCKET: ({"batch_sizes": (4,), "prefill_num_tokens": (4,)}, ["add_prefill_bucket"]),
    FallOff.DRAFT_LEN_NOT_CAPTURED: (
        {"batch_sizes": (4,), "drafts": (9, 9, 9, 9), "sampling": {"max_tokens": 6}},
        ["capture_draft_len"],
    ),
    FallOff.COMPILE_NOT_RECORDED: ({"batch_sizes": (4,), "compiled": True}, ["compile_off"]),
}
# These are met after the graphs were released, which no configuration undoes.
RELEASED = {FallOff.NO_DUMMY_SLOT: (2, 4), FallOff.CAPTURE_NOT_ALLOWED_NOW: (1, 3)}


def first(trace, reason):
    return next(at for at, step in enumerate(trace.steps) if step.path.reason == reason)


def smaller_changes_that_work(trace, i, num_fields):
    """Try every combination of fewer fields, without the search's shortcuts."""
    workload = Workload.of(trace, i)
    baseline = workload.run(workload.config)
    assert baseline is not None
    if baseline.path in GRAPH_PATHS:
        return [()]
    worked = []
    for count in range(1, num_fields):
        for names in itertools.permutations([rule.name for rule in CHANGES], count):
            proof, config = baseline, workload.config
            for name in names:
                facts = _facts(proof) if proof is not None else _facts(baseline)
                step = next((one for one in variations(config, facts) if one.change.name == name), None)
                if step is None or step.config is None:
                    break
                config, proof = step.config, workload.run(step.config)
            else:
                if proof is not None and proof.path in GRAPH_PATHS:
                    worked.append(names)
    return worked


@pytest.mark.parametrize("reason", MET_BY)
def test_the_smallest_change_is_found_and_proved(reason):
    settings, expected = MET_BY[reason]
    trace = record(**settings)
    i = next(at for at, step in enumerate(trace.steps) if step.path.reason == reason)
    if reason is not FallOff.HAS_CONTEXT_UNPROMOTED and trace.steps[i + 1].path.reason == reason:
        i += 1  # a decode step: its prompt is not what keeps it off
    answer = counterfactual(trace, i)
    assert answer.reason == reason
    assert [change.name for change in answer.change] == expected
    assert smaller_changes_that_work(trace, i, len(expected)) == []
    proof = answer.proof
    assert proof is not None
    step = proof.trace.steps[proof.step]
    assert step.graph.path == proof.path in GRAPH_PATHS
    assert step.graph.key == proof.key is not None
    assert [span.num_rows for span in step.schedule.spans] == [s.num_rows for s in trace.steps[i].schedule.spans]
    assert len(proof.trace) == proof.step + 1
    for change in answer.change:
        assert f"{change.field}: {change.before} → {change.after}." in answer.sentence
    path = {"replay": "replay", "prefill_replay": "prefill segments"}[proof.path]
    assert f"its step {proof.step} does the same work by {path} of {proof.key}" in answer.sentence
    assert "simulated by the CPU tape" in answer.sentence


@pytest.mark.parametrize("reason", RELEASED)
def test_released_graphs_are_no_matter_of_configuration(reason):
    trace = record(release=True, batch_sizes=RELEASED[reason])
    i = first(trace, reason)
    answer = counterfactual(trace, i)
    assert (answer.reason, answer.change, answer.tried) == (reason, (), ())
    assert answer.proof is not None
    assert answer.proof.path == "replay"
    assert f"What sent the recorded step off ({reason}) is not in the configuration." in answer.sentence


def test_a_prompt_after_a_release_is_no_matter_of_configuration():
    trace = record(release=True, batch_sizes=(1, 3), prefill_num_tokens=(32,))
    answer = counterfactual(trace, 0)
    assert (answer.reason, answer.change) == ("CAPTURE_NOT_ALLOWED_NOW", ())
    assert answer.proof is not None
    assert answer.proof.path == "prefill_replay"


def test_every_reason_of_a_serving_step_has_a_counterfactual_here():
    assert {*MET_BY, *RELEASED} == {*FallOff} - {FallOff.WARMUP}


def test_two_fields_when_one_is_not_enough():
    trace = record(enabled=False, enable_padding=False, batch_sizes=(1,))
    i = first(trace, FallOff.GRAPHS_DISABLED) + 1
    answer = counterfactual(trace, i)
    assert [change.name for change in answer.change] == ["graphs_on", "add_bucket"]
    assert smaller_changes_that_work(trace, i, 2) == []
    assert {attempt.outcome for attempt in answer.tried} >= {"GRAPHS_DISABLED", "ABOVE_LARGEST_BUCKET"}
    assert f"{len(answer.tried)} changes were tried before it." in answer.sentence


def test_a_step_on_a_graph_needs_nothing():
    answer = counterfactual(record(), -1)
    assert (answer.reason, answer.change, answer.proof, answer.tried) == (None, (), None, ())
    assert str(answer) == "This step is on a graph already: nothing has to change."


def test_when_nothing_helps_that_is_said_with_what_was_tried(monkeypatch):
    monkeypatch.setattr(search, "_try", lambda *_: (None, "refused: by the test"))
    trace = record(batch_sizes=(1, 2))
    answer = counterfactual(trace, first(trace, FallOff.ABOVE_LARGEST_BUCKET), max_fields=1)
    assert (answer.change, answer.proof) == ((), None)
    assert answer.sentence.startswith(
        "No change of the stated set helps. Tried: CudaGraphConfig.batch_sizes: (1, 2) → (1, 2, 3), "
    )


def test_when_nothing_was_tried_that_is_said():
    trace = record(batch_sizes=(1, 2))
    answer = counterfactual(trace, first(trace, FallOff.ABOVE_LARGEST_BUCKET), max_fields=0)
    assert (answer.change, answer.proof, answer.tried) == ((), None, ())
    assert answer.sentence == "No change was tried."


def test_a_step_that_would_not_fall_off_again_is_told_apart():
    trace = record()
    last = trace.steps[-1]
    path = dataclasses.replace(last.path, key=None, reason="CAPTURE_NOT_ALLOWED_NOW")
    graph = dataclasses.replace(last.graph, path="eager", key=None)
    eager = Trace(trace.header, (*trace.steps[:-1], dataclasses.replace(last, path=path, graph=graph)))
    answer = counterfactual(eager, -1)
    assert answer.change == ()
    assert answer.proof is not None
    assert answer.sentence.startswith(
        "No change is needed: run again as configured, step 2 does the same work by replay"
    )
    assert "What sent the recorded step off (CAPTURE_NOT_ALLOWED_NOW) is not in the configuration." in answer.sentence


@pytest.mark.parametrize("i", [99, -99, 1.0, True, "1"])
def test_a_step_that_is_not_there_is_named(i):
    with pytest.raises(TraceError, match=r"step must be an index from -3 to 2, got"):
        counterfactual(record(), i)


def test_what_is_no_trace_or_no_number_of_fields_is_named():
    with pytest.raises(TraceError, match=r"takes a Trace and an index, got a str; a session's is session.trace"):
        counterfactual("run.trace.json.gz", 0)
    for fields in (-1, 1.0, True):
        with pytest.raises(TraceError, match="max_fields must be an integer of at least 0, got"):
            counterfactual(record(), 0, max_fields=fields)

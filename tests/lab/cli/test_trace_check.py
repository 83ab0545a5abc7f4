"""``stepscope trace check``: the share, the reasons with their fixes, the exit status, bad files."""

import dataclasses
import gzip
import json
from pathlib import Path

import pytest

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from lab.cli.main import main
from lab.counterfactuals import search, workload
from lab.session import Session
from lab.trace import Trace, graph_share


def record(path, **graphs):
    config = EngineConfig(
        device="cpu",
        max_seq_len=64,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=32),
        cuda_graph=CudaGraphConfig(**graphs),
    )
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    with Session("tiny", prompts=["one", "two", "xyz"], config=config, params=params, mode="light") as session:
        return str(session.run().save(path))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return record(tmp_path_factory.mktemp("check") / "good.gz")


@pytest.fixture(scope="module")
def poor(tmp_path_factory):
    return record(tmp_path_factory.mktemp("check") / "poor.gz", batch_sizes=(1, 2))


def test_a_share_that_is_reached_is_status_zero(good, capsys):
    assert main(["trace", "check", good, "--min-graph-share", "0.8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "graph share 80.0 %; at least 80.0 % was asked for: reached (graphs simulated on the CPU)"
    assert lines[1].startswith("1 x HAS_CONTEXT_UNPROMOTED, first at step 0: Prompts in the batch: 3, and")
    assert lines[2].startswith("    smallest fix: ")


def test_a_share_that_is_not_reached_is_status_one_with_each_reason_and_its_fix(poor, capsys):
    assert main(["trace", "check", poor]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "graph share 0.0 %; at least 90.0 % was asked for: NOT reached (graphs simulated on the CPU)"
    assert lines[1] == (
        "4 x ABOVE_LARGEST_BUCKET, first at step 1: The batch has 3 requests; the largest captured size is 2."
    )
    assert lines[2] == "    smallest fix: Add 3 to CudaGraphConfig.batch_sizes."
    assert lines[3].startswith("1 x HAS_CONTEXT_UNPROMOTED")


def test_a_share_just_below_what_is_asked_for_is_written_apart_from_it(good, capsys):
    assert main(["trace", "check", good, "--min-graph-share", "0.8004"]) == 1
    assert capsys.readouterr().out.startswith("graph share 80.00 %; at least 80.04 % was asked for: NOT reached")
    assert main(["trace", "check", good, "--min-graph-share", "-0.0"]) == 0
    assert capsys.readouterr().out.startswith("graph share 80.0 %; at least 0.0 % was asked for: reached")


def test_as_json_the_numbers_are_those_of_the_trace(poor, capsys):
    assert main(["trace", "check", poor, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["graph_share"] == graph_share(Trace.load(poor).steps) == 0.0
    assert [(found["reason"], found["count"], found["first_step"]) for found in report["fall_offs"]] == [
        ("ABOVE_LARGEST_BUCKET", 4, 1),
        ("HAS_CONTEXT_UNPROMOTED", 1, 0),
    ]


def test_prove_runs_the_workload_again(poor, capsys):
    assert main(["trace", "check", poor, "--prove", "--json"]) == 1
    proved = json.loads(capsys.readouterr().out)["fall_offs"][0]["proved"]
    assert proved["change"] == [{"field": "CudaGraphConfig.batch_sizes", "before": [1, 2], "after": [1, 2, 3]}]
    assert (proved["path"], proved["step"], proved["of_step"]) == ("replay", 1, 1)
    assert proved["coverage"] == {"num_steps": 4, "num_on_graph": 4, "num_gone": 0, "graph_share": 0.8}
    assert main(["trace", "check", poor, "--prove"]) == 1
    out = capsys.readouterr().out
    assert "    proved for step 1: CudaGraphConfig.batch_sizes: (1, 2) → (1, 2, 3)." in out
    assert "    in the whole re-run, on a graph: 4 of the 4 steps of this reason; its graph share is 80.0 %\n" in out


def test_the_fix_and_the_proof_are_for_the_largest_step_of_a_reason(tmp_path, capsys):
    config = EngineConfig(
        device="cpu",
        max_seq_len=64,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=32),
        cuda_graph=CudaGraphConfig(),
    )
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    prompts = ["a small one", (2, "and one that is larger"), (4, "short")]
    with Session("tiny", prompts=prompts, config=config, params=params, mode="light") as session:
        path = str(session.run().save(tmp_path / "three.gz"))
    assert main(["trace", "check", path, "--prove", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["simulated"] is True
    [found] = report["fall_offs"]
    assert (found["count"], found["first"], found["largest"], found["steps"]) == (3, 0, 2, [0, 2, 4])
    assert found["fix"].startswith("Add 23 to CudaGraphConfig.prefill_num_tokens")
    assert found["proved"]["change"][-1]["after"] == [23]
    assert main(["trace", "check", path]) == 1
    assert "    smallest fix for step 2, the largest: Add 23 to" in capsys.readouterr().out
    assert found["proved"]["coverage"] == {"num_steps": 3, "num_on_graph": 3, "num_gone": 0, "graph_share": 1.0}


def test_a_fix_that_is_the_same_for_all_is_proved_on_a_plain_decode(tmp_path, capsys):
    path = record(tmp_path / "off.gz", enabled=False)
    assert main(["trace", "check", path, "--prove"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("5 x GRAPHS_DISABLED, first at step 0: ")
    assert lines[2] == "    smallest fix: Set CudaGraphConfig(enabled=True)."
    assert lines[3].startswith("    proved for step 1: CudaGraphConfig.enabled: False → True. ")
    assert lines[4].startswith("    in the whole re-run, on a graph: 4 of the 5 steps of this reason; ")


def test_a_proof_for_one_step_does_not_speak_for_the_others(poor, capsys, monkeypatch):
    real = workload.cover
    monkeypatch.setattr(
        workload, "cover", lambda *a, **k: dataclasses.replace(real(*a, **k), num_on_graph=1, num_gone=2)
    )
    assert main(["trace", "check", poor, "--prove"]) == 1
    said = "in the whole re-run, on a graph: 1 of the 4 steps of this reason (2 do not occur in it); its graph share"
    assert said in capsys.readouterr().out


def test_a_reason_that_nothing_cures_is_not_called_proved(poor, capsys, monkeypatch):
    monkeypatch.setattr(search, "variations", lambda config, step: ())
    assert main(["trace", "check", poor, "--prove"]) == 1
    out = capsys.readouterr().out
    assert "    not proved for step 1: " in out
    assert "    proved" not in out


@pytest.mark.parametrize("share", ["1.5", "-0.1", "nan"])
def test_a_share_outside_of_zero_to_one_is_refused(good, share, capsys):
    assert main(["trace", "check", good, "--min-graph-share", share]) == 2
    assert "--min-graph-share must be from 0 to 1, got" in capsys.readouterr().err


def test_files_that_are_no_traces_are_status_two_and_one_line(good, tmp_path, capsys):
    cut = tmp_path / "cut.gz"
    cut.write_bytes(Path(good).read_bytes()[:200])
    other = tmp_path / "other.gz"
    other.write_bytes(gzip.compress(b"[1, 2]"))
    plain = tmp_path / "plain.gz"
    plain.write_text("no gzip")
    for path in (cut, other, plain, tmp_path / "missing.gz", tmp_path):
        assert main(["trace", "check", str(path)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("stepscope: error: ")
        assert captured.err.count("\n") == 1


def rename(path, old, new, target):
    """Write a copy of a trace file in which one name is another."""
    content = json.loads(gzip.decompress(Path(path).read_bytes()))
    strings = content["steps"]["strings"]
    strings[strings.index(old)] = new
    target.write_bytes(gzip.compress(json.dumps(content).encode()))
    return str(target)


def test_a_reason_of_another_version_is_said_to_be_unknown(poor, tmp_path, capsys):
    path = rename(poor, "ABOVE_LARGEST_BUCKET", "BAD_LUCK", tmp_path / "other.gz")
    assert main(["trace", "check", path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == (
        "4 x BAD_LUCK, first at step 1: This reason is unknown to this Stepscope; the version that recorded the trace "
        "has its words."
    )
    assert lines[2] == "    smallest fix: not known"
    assert main(["trace", "show", path, "--step", "1"]) == 0
    assert "It runs eagerly: BAD_LUCK, a reason unknown to this Stepscope (needed: " in capsys.readouterr().out


def test_a_step_whose_reason_is_in_no_column_is_said_to_have_none(poor, tmp_path, capsys):
    trace = Trace.load(poor)
    steps = [dataclasses.replace(s, path=dataclasses.replace(s.path, reason=None)) for s in trace.steps]
    assert main(["trace", "check", str(Trace(trace.header, steps).save(tmp_path / "untold.gz"))]) == 1
    assert "5 x not recorded, first at step 0: The trace does not say why.\n" in capsys.readouterr().out


def test_a_trace_without_steps_has_no_share(good, tmp_path, capsys):
    empty = Trace(Trace.load(good).header, ()).save(tmp_path / "empty.gz")
    assert main(["trace", "check", str(empty)]) == 2
    assert "has no step with a forward" in capsys.readouterr().err


def test_a_redacted_trace_is_checked_but_not_proved(poor, tmp_path, capsys):
    path = Trace.load(poor).save(tmp_path / "redacted.gz", redact=True)
    assert main(["trace", "check", str(path)]) == 1
    capsys.readouterr()
    assert main(["trace", "check", str(path), "--prove"]) == 2
    assert "it is redacted: its prompts are gone" in capsys.readouterr().err

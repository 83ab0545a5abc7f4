import json

import pytest

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from lab.cli.main import main
from lab.cli.trace import table
from lab.session import Session
from lab.trace import Trace


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("traces") / "x.trace.json.gz"
    arguments = ["--prompts", "hello", "a second prompt", "third", "--stagger", "2", "--max-tokens", "5"]
    assert main(["trace", "record", "--out", str(path), "--mode", "full", "--max-batch-size", "4", *arguments]) == 0
    return path


def test_a_recorded_workload_can_be_loaded(recorded):
    trace = Trace.load(recorded)
    assert [request.arrival_step for request in trace.header.requests] == [0, 2, 4]
    assert trace.header.mode == "full"
    assert trace.header.model.name == "tiny"


def test_what_was_recorded_on_the_tape_says_so_at_once(tmp_path, capsys):
    options = ["--prompts", "hi", "--max-tokens", "2", "--device", "cpu"]
    assert main(["trace", "record", "--out", str(tmp_path / "x.gz"), *options]) == 0
    assert "graphs: simulated by the CPU tape" in capsys.readouterr().out.splitlines()


def test_show_prints_a_row_for_each_step_and_the_summary(recorded, capsys):
    assert main(["trace", "show", str(recorded)]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    trace = Trace.load(recorded)
    assert "graphs simulated" in lines[0]
    assert lines[1].split()[:3] == ["step", "path", "bucket"]
    assert len(lines) >= 2 + len(trace)
    assert str(trace.summary()) in out


def test_show_as_json_holds_the_same_numbers(recorded, capsys):
    assert main(["trace", "show", str(recorded), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["summary"]["num_steps"] == len(report["steps"])
    assert report["steps"][0]["reason"] == "HAS_CONTEXT_UNPROMOTED"
    assert report["simulated"] is report["summary"]["simulated"] is Trace.load(recorded).header.device.simulated
    assert sum(step["sampled"] for step in report["steps"]) == 15


def test_one_step_is_explained_with_its_rows_and_conditions(recorded, capsys):
    assert main(["trace", "show", str(recorded), "--step", "0"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Step 0 runs 1 request.")
    assert "FAIL  HAS_CONTEXT_UNPROMOTED: needed 0 contexts, got 1" in out
    assert "-     ABOVE_LARGEST_BUCKET: not reached" in out
    assert main(["trace", "show", str(recorded), "--step", "-1", "--language", "zh"]) == 0
    assert "步运行" in capsys.readouterr().out


def test_one_step_as_json_lists_its_rows(recorded, capsys):
    assert main(["trace", "show", str(recorded), "--step", "0", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["text"] for row in report["rows"]] == list("hello")
    assert {row["source"] for row in report["rows"]} == {"prompt"}
    assert report["simulated"] is Trace.load(recorded).header.device.simulated


def test_a_step_outside_the_trace_names_the_range(recorded, capsys):
    assert main(["trace", "show", str(recorded), "--step", "999"]) == 2
    assert "--step must be a step's number, 0 to " in capsys.readouterr().err


def test_a_missing_file_is_one_line(capsys, tmp_path):
    assert main(["trace", "show", str(tmp_path / "none.gz")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_redacted_file_keeps_the_table(tmp_path, capsys):
    path = tmp_path / "r.gz"
    arguments = ["--prompts", "secret words", "--max-tokens", "2", "--redact"]
    assert main(["trace", "record", "--out", str(path), *arguments]) == 0
    assert main(["trace", "show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "secret" not in out
    assert "HAS_CONTEXT_UNPROMOTED" in out
    assert Trace.load(path).header.redacted


def test_the_tail_of_a_prefill_bucket_counts_as_padding(tmp_path, capsys):
    config = EngineConfig(
        device="cpu",
        scheduler=SchedulerConfig(max_batch_size=2, max_num_tokens=512),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2), prefill_num_tokens=(512,)),
    )
    with Session(
        "tiny", prompts=["hi"], config=config, params=SamplingParams(max_tokens=3, ignore_eos=True)
    ) as session:
        trace = session.run()
    path = str(trace.save(tmp_path / "prefill.gz"))
    assert trace.summary().padding_share == 510 / 514
    assert main(["trace", "show", path, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["summary"]["padding_share"] == 510 / 514
    shown = [(step["path"], step["bucket"], step["rows"], step["padding"]) for step in report["steps"]]
    assert shown == [("prefill_replay", 512, 512, 510), ("replay", 1, 1, 0), ("replay", 1, 1, 0)]
    assert main(["trace", "show", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:6] == ["0", "prefill_replay", "512", "1", "512", "510"]
    assert "padding: 99.22 % of all rows" in lines


def test_a_table_aligns_numbers_right_and_texts_left():
    rows = [{"step": 1, "path": "eager", "rows": 12}, {"step": 10, "path": "replay", "rows": None}]
    assert table(rows).splitlines() == ["step  path    rows", "   1  eager     12", "  10  replay     -"]
    assert table([]) == "no steps"

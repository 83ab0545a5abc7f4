"""``stepscope plan-buckets`` at the command line."""

import json

import pytest

from engine.config import CudaGraphConfig, EngineConfig, SchedulerConfig
from lab.cli.main import main
from lab.session import Session


@pytest.fixture
def trace_file(tmp_path):
    lines = [f"{at / 10},{100 + 10 * (at % 9)},{30 + at % 17}" for at in range(60)]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines, ""]))
    return str(path)


def test_json_holds_optimum_defaults_histogram_and_cost_model(trace_file, capsys):
    assert main(["plan-buckets", trace_file, "--max-buckets", "5", "--max-batch-size", "64", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["optimal", "defaults", "histogram", "cost_model"]
    assert len(report["optimal"]["sizes"]) <= 5
    assert report["optimal"]["sizes"][-1] == 64
    assert sum(report["histogram"].values()) > 0
    for default in report["defaults"].values():
        assert default["optimal_at_same_count"]["cost"] <= default["cost"]


def test_the_table_ends_with_the_list_to_capture(trace_file, capsys):
    assert main(["plan-buckets", trace_file, "--max-buckets", "3", "--max-batch-size", "16"]) == 0
    out = capsys.readouterr().out
    assert "tensorrt_llm" in out
    last = out.splitlines()[-1]
    assert last.startswith("capture these: ")
    assert last.endswith(",16")
    assert "a graph costs 300 ms to capture" in out


def test_prefill_buckets_and_a_page(trace_file, tmp_path, capsys):
    target = tmp_path / "advice.html"
    arguments = ["plan-buckets", trace_file, "--prefill", "--max-num-tokens", "1024", "--html", str(target)]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["optimal"]["sizes"][-1] == 1024
    assert report["cost_model"]["kind"] == "prefill"
    assert "Decode: what each list costs" in target.read_text()


def test_a_recorded_run_is_a_source_too(tmp_path, capsys):
    path = str(tmp_path / "x.trace.json.gz")
    config = EngineConfig(
        device="cpu",
        scheduler=SchedulerConfig(max_batch_size=2, max_num_tokens=64),
        cuda_graph=CudaGraphConfig(batch_sizes=(2,), sample_modes=("greedy",)),
    )
    with Session("tiny", prompts=["hello", "hi there"], config=config) as session:
        session.run().save(path)
    assert main(["plan-buckets", path, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["optimal"]["sizes"] == [2]
    assert set(report["histogram"]) <= {"1", "2"}
    assert main(["plan-buckets", path, "--max-batch-size", "4", "--limit", "3", "--cost", "graph.fixed=1"]) == 2
    said = capsys.readouterr().err
    assert "--limit, --max-batch-size must come with a serving trace (CSV or JSONL), got the recorded run" in said
    assert "`stepscope trace import`" in said


def test_prices_can_be_given_and_wrong_ones_are_refused(trace_file, capsys):
    assert main(["plan-buckets", trace_file, "--capture-ms", "0", "--mib", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost_model"]["capture_us"] == 0.0
    assert main(["plan-buckets", trace_file, "--hours", "0"]) == 2
    assert "--hours must be a finite number in (0, 1e+09], got 0.0" in capsys.readouterr().err
    assert main(["plan-buckets", trace_file, "--capture-ms", "-1"]) == 2
    assert "--capture-ms must be a finite number in [0, 1e+09], got -1.0" in capsys.readouterr().err


def test_measured_numbers_take_the_place_of_given_ones(trace_file, capsys, monkeypatch):
    from lab.bench import bucket_costs

    terms = {f"{path}.{term}": 1.0 for path in ("graph", "prefill", "eager") for term in ("fixed", "per_row")}
    measured = bucket_costs.MeasuredCosts(terms, 12.5, 0.5, "measured here: tiny on cpu")
    monkeypatch.setattr(bucket_costs, "measure", lambda model: measured)
    assert main(["plan-buckets", trace_file, "--measure", "tiny", "--mib", "3", "--json"]) == 0
    model = json.loads(capsys.readouterr().out)["cost_model"]
    assert (model["fixed"], model["capture_us"], model["graph_mib"]) == (1.0, 12_500.0, 3.0)
    assert model["origin"] == "steps: measured here: tiny on cpu; graphs: mib given; measured here: tiny on cpu"


def test_a_folder_is_called_one_and_every_file_that_is_taken_is_named(tmp_path, capsys):
    assert main(["plan-buckets", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"stepscope: error: {tmp_path} cannot be read as a serving trace: it is a folder; give a CSV or JSONL file, or "
        "a recorded run (.trace.json.gz)\n"
    )

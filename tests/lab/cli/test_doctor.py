import copy
import json

import pytest

from engine.errors import ConfigError
from lab.cli import doctor
from lab.cli.main import main

GIB = 1 << 30


@pytest.fixture(scope="module")
def report():
    return doctor.examine()


def states(report):
    return {finding.name: finding.state for finding in doctor.judge(report)}


def test_the_report_says_what_this_machine_can_do(report):
    assert report["versions"]["torch"]
    assert report["devices"][0]["device"] == "cpu"
    assert report["devices"][0]["free_bytes"] > 0
    assert report["graph_backend"] in ("tape", "cuda")
    assert report["graphs_simulated"] is (report["graph_backend"] == "tape")
    assert report["attention_backends"] == ["native", "vanilla"]
    assert "tiny" in report["models"]["ready"]


def test_backends_and_what_a_compiler_lacks_are_told(report, monkeypatch):
    assert report["native_kernels"] in ("cpu", "triton")
    found = {finding.name: finding for finding in doctor.judge(report)}
    assert found["attention"].value == f"native ({report['native_kernels']} kernels), vanilla"

    def refuse(_spec):
        message = "EngineConfig.torch_compile=True needs a C++ compiler, and there is no 'g++'"
        raise ConfigError(message)

    monkeypatch.setattr("engine.models.compiled.require_compiler", refuse)
    poor = report | {"torch_compile_lacks": doctor._lacking_for_compile()}
    found = {finding.name: finding for finding in doctor.judge(poor)}
    assert (found["torch_compile"].state, found["torch_compile"].value) == ("note", "not possible")
    assert "there is no 'g++'" in found["torch_compile"].advice
    monkeypatch.setattr("engine.models.compiled.require_compiler", lambda _spec: None)
    assert doctor._lacking_for_compile() is None


def test_a_missing_package_is_broken_and_status_one(report, monkeypatch, capsys):
    broken = copy.deepcopy(report)
    broken["versions"]["anywidget"] = None
    assert states(broken)["anywidget"] == "broken"
    monkeypatch.setattr(doctor, "examine", lambda: broken)
    assert main(["doctor"]) == 1
    assert "broken  anywidget: missing  (run `make setup`)" in capsys.readouterr().out


def test_without_torch_the_rest_is_still_told(report):
    bare = copy.deepcopy(report)
    bare["versions"]["torch"] = None
    bare["devices"], bare["graph_backend"] = [], None
    found = states(bare)
    assert found["torch"] == "broken"
    assert "graphs" not in found
    assert found["python"] == "ok"


def test_little_memory_no_compiler_and_no_model_are_notes(report):
    poor = copy.deepcopy(report)
    poor["devices"] = [{"device": "cpu", "name": "x", "free_bytes": GIB // 2, "cores": 1, "threads": 1}]
    poor["compiler"] = {"cc": None, "nvcc": None}
    poor["models"]["ready"] = ["tiny"]
    poor["graph_backend"] = "cuda"
    found = states(poor)
    assert (found["cpu"], found["compiler"], found["models"], found["graphs"]) == ("note", "note", "note", "ok")


@pytest.mark.parametrize(("count", "words"), [(1, "1 core, 1 thread"), (2, "2 cores, 2 threads")])
def test_one_of_a_thing_is_not_several(report, count, words):
    counted = copy.deepcopy(report)
    counted["devices"] = [{"device": "cpu", "name": "x", "free_bytes": 2 * GIB, "cores": count, "threads": count}]
    [found] = [finding for finding in doctor.judge(counted) if finding.name == "cpu"]
    assert found.value == f"x, 2.0 GiB free, {words}"


def test_a_simulated_graph_backend_is_labelled(report):
    simulated = copy.deepcopy(report)
    simulated["graph_backend"] = "tape"
    [graphs] = [finding for finding in doctor.judge(simulated) if finding.name == "graphs"]
    assert graphs.value == "simulated by the CPU tape"
    assert "speed" in graphs.advice


def test_json_holds_facts_and_findings(report, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda: report)
    status = main(["doctor", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["ok"] is (status == 0)
    assert {finding["name"] for finding in printed["findings"]} >= {"python", "torch", "cpu", "models"}


def printed_plan(capsys, *options):
    main(["doctor", "--json", *options])
    return json.loads(capsys.readouterr().out)["buckets"]


def test_the_default_buckets_are_fine(capsys):
    plan = printed_plan(capsys)
    assert plan["batch_sizes"] == [1, 2, 4, 8]
    assert plan["findings"] == []
    assert doctor.judge_buckets(plan)[0].value == "1, 2, 4, 8 (padding on, at most 8 requests a step)"


def test_a_bucket_list_with_holes_is_named_with_the_fix(capsys):
    options = ("--max-batch-size", "16", "--batch-sizes", "1,4, 8", "--no-padding")
    plan = printed_plan(capsys, *options)
    assert [(found["kind"], found["sizes"]) for found in plan["findings"]] == [
        ("SIZE_BETWEEN_BUCKETS", [2, 3, 5, 6, 7]),
        ("SIZE_ABOVE_LARGEST_BUCKET", [9, 10, 11, 12, 13, 14, 15]),
        ("MAXIMUM_IS_NO_BUCKET", [16]),
    ]
    main(["doctor", *options])
    lines = capsys.readouterr().out.splitlines()
    [gap] = [line for line in lines if "SIZE_BETWEEN_BUCKETS" in line]
    assert gap == (
        "note    SIZE_BETWEEN_BUCKETS: padding is off and there is no exact bucket for 2 to 3, 5 to 7: such batches "
        "run eagerly  (set CudaGraphConfig(enable_padding=True), or add these sizes to CudaGraphConfig.batch_sizes)"
    )


def test_prefill_buckets_are_examined_too(capsys):
    plan = printed_plan(capsys, "--max-num-tokens", "100", "--prefill-num-tokens", "64,128")
    assert [(found["kind"], found["sizes"]) for found in plan["findings"]] == [("PREFILL_ABOVE_TOKEN_BUDGET", [128])]
    assert plan["prefill_num_tokens"] == [64, 128]


@pytest.mark.parametrize(
    ("options", "state", "value"),
    [
        ([], "note", "none: steps that compute a prompt, beyond its last token, run eagerly"),
        (
            ["--prefill-num-tokens", "64"],
            "note",
            "64: steps of 65 to 512 rows that compute a prompt, beyond its last token, run eagerly",
        ),
        (
            ["--prefill-num-tokens", "64,511"],
            "note",
            "64, 511: steps of 512 rows that compute a prompt, beyond its last token, run eagerly",
        ),
        (["--prefill-num-tokens", "64,512"], "ok", "64, 512 (at most 512 rows a step)"),
    ],
)
def test_prompts_that_no_prefill_bucket_holds_are_named(options, state, value, capsys):
    [found] = [one for one in doctor.judge_buckets(printed_plan(capsys, *options)) if one.name == "prefill buckets"]
    assert (found.state, found.value) == (state, value)
    assert bool(found.advice) == (state == "note")


@pytest.mark.parametrize(
    ("options", "listed", "advice"),
    [
        (
            ["--max-batch-size", "4", "--batch-sizes", "1,8"],
            "1, 8",
            "CudaGraphConfig.batch_sizes must not exceed SchedulerConfig.max_batch_size=4, got (1, 8); drop the larger",
        ),
        (
            ["--prefill-num-tokens", "1024", "--max-batch-size", "4"],
            "1, 2, 4",
            "CudaGraphConfig.prefill_num_tokens must not exceed SchedulerConfig.max_num_tokens=512, got (1024,); drop",
        ),
    ],
)
def test_what_the_engine_refuses_is_called_refused(options, listed, advice, capsys):
    assert main(["doctor", *options]) == 1
    [line] = [line for line in capsys.readouterr().out.splitlines() if " buckets: " in line]
    begin = f"broken  buckets: {listed} (padding on, at most 4 requests a step): the engine refuses this configuration"
    assert line.startswith(f"{begin}  ({advice}")


def test_drafts_of_any_length_are_no_refusal(capsys):
    assert printed_plan(capsys, "--draft-lens", "8")["refused"] is None


def test_a_compiled_body_that_the_tape_cannot_record_is_a_note(report):
    simulated = report | {"graph_backend": "tape", "torch_compile_lacks": None}
    [found] = [finding for finding in doctor.judge(simulated) if finding.name == "torch_compile"]
    assert (found.state, found.value) == ("note", "possible, but with the CPU tape every step then runs eagerly")
    real = report | {"graph_backend": "cuda", "torch_compile_lacks": None}
    [found] = [finding for finding in doctor.judge(real) if finding.name == "torch_compile"]
    assert (found.state, found.value, found.advice) == ("ok", "possible", "")


def test_draft_lengths_are_examined_too(capsys):
    options = ("--max-batch-size", "8", "--max-num-tokens", "20", "--draft-lens", "4,20")
    plan = printed_plan(capsys, *options)
    assert [(found["kind"], found["sizes"]) for found in plan["findings"]] == [("DRAFTS_ABOVE_TOKEN_BUDGET", [20])]
    assert plan["draft_batch_sizes"] == {"4": [1, 2, 4], "20": []}
    main(["doctor", *options])
    assert "1, 2, 4, 8; with 4 drafts 1, 2, 4; with 20 drafts none (padding on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--batch-sizes", "1,two"], "--batch-sizes must be numbers with commas between them, such as 1,2,4"),
        (["--batch-sizes", "4,1"], "--batch-sizes must be ascending without duplicates"),
        (["--max-batch-size", "0"], "--max-batch-size must be an integer"),
        (["--max-num-tokens", "4"], "--max-num-tokens must be at least --max-batch-size"),
    ],
)
def test_numbers_that_make_no_configuration_are_one_line(options, words, capsys):
    assert main(["doctor", *options]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""

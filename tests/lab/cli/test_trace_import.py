import json
from pathlib import Path

import pytest

from lab.cli import trace_import
from lab.cli.main import main
from lab.imports import read_log

SAMPLES = Path(read_log.__file__).parent / "samples"
TRTLLM = ["--from", "trtllm-iter-log", "--buckets", "1,2,4,8"]


@pytest.fixture
def imported(tmp_path):
    out = tmp_path / "x.trace.json.gz"
    assert main(["trace", "import", str(SAMPLES / "trtllm_iter.log"), *TRTLLM, "-o", str(out), "--name", "llama"]) == 0
    return out


def test_the_formats_are_those_that_can_be_read():
    assert trace_import._FORMATS == read_log.FORMATS


def test_what_came_in_is_said_at_once(tmp_path, capsys):
    out = tmp_path / "x.trace.json.gz"
    assert main(["trace", "import", str(SAMPLES / "trtllm_iter.log"), *TRTLLM, "-o", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "10 steps (6 replay, 3 eager, 1 idle), imported: requests and tokens are not in the file"
    assert lines[-1].startswith(f"saved: {out} (")


def test_the_table_shows_what_is_not_known_as_a_dash(imported, capsys):
    assert main(["trace", "show", str(imported)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "llama on another engine, imported mode, from trtllm-iter-log" in lines
    heading = next(line for line in lines if line.split()[:1] == ["step"]).split()
    row = dict(zip(heading, next(line for line in lines if line.split()[:2] == ["5", "replay"]).split(), strict=True))
    known = {
        "step": "5",
        "path": "replay",
        "bucket": "4",
        "requests": "3",
        "rows": "4",
        "padding": "1",
        "host_us": "4900.0",
    }
    assert {name: row[name] for name in known} == known
    assert {row[name] for name in row.keys() - known.keys()} == {"-"}


def test_one_step_is_explained_without_rows(imported, capsys):
    capsys.readouterr()
    assert main(["trace", "show", str(imported), "--step", "-1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Step 10: rows 9, requests 9, rows from prompts 0; it ran eagerly.")
    assert "its rows are not in the imported file" in out
    assert "FAIL  ABOVE_LARGEST_BUCKET: needed at most 8 requests, got 9" in out
    capsys.readouterr()
    assert main(["trace", "show", str(imported), "--step", "7"]) == 0
    assert capsys.readouterr().out.startswith("Step 7 has nothing to run.\n")
    assert main(["trace", "show", str(imported), "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert steps[0]["sampled"] is steps[0]["finished"] is None


def test_an_imported_file_is_checked_like_a_recorded_one(imported, capsys):
    assert main(["trace", "check", str(imported), "--min-graph-share", "0.6"]) == 0
    assert main(["trace", "check", str(imported), "--min-graph-share", "0.7"]) == 1
    out = capsys.readouterr().out
    assert (
        "1 x ABOVE_LARGEST_BUCKET, first at step 10: The batch has 9 requests; the largest captured size is 8." in out
    )
    assert "smallest fix: Add 9 to CudaGraphConfig.batch_sizes." in out


def test_what_cannot_be_run_again_cannot_be_proved(imported, capsys):
    assert main(["trace", "check", str(imported), "--prove"]) == 2
    assert "cannot be run again" in capsys.readouterr().err


def test_it_becomes_a_page_and_a_timeline(imported, tmp_path):
    page, timeline = tmp_path / "x.html", tmp_path / "x.json"
    assert main(["trace", "export", str(imported), "--html", str(page), "--perfetto", str(timeline)]) == 0
    assert "Imported: the numbers of another engine" in page.read_text(encoding="utf-8")
    events = json.loads(timeline.read_text(encoding="utf-8"))["traceEvents"]
    assert sum(event.get("cat") == "fall-off" for event in events) == 3
    assert {event["pid"] for event in events} == {1}  # no request has a name


def test_its_batches_can_be_planned_for(imported, capsys):
    assert main(["plan-buckets", str(imported), "--max-buckets", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["optimal"]["sizes"][-1] == 9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from", "trtllm-iter-log"], "give the list with --buckets 1,2,4"),
        (
            ["--from", "trtllm-iter-log", "--buckets", "8,2,2"],
            "--buckets must be ascending without duplicates, got 8,2,2; use 2,8",
        ),
        (
            ["--from", "trtllm-iter-log", "--buckets", "1", "--prefill-buckets", "64,32"],
            "--prefill-buckets must be ascending without duplicates, got 64,32; use 32,64",
        ),
        (
            ["--from", "trtllm-iter-log", "--buckets", "few"],
            "--buckets must be numbers above 0 with commas between them",
        ),
        ([*TRTLLM, "--limit", "0"], "--limit must be an integer of at least 1, got 0"),
        ([*TRTLLM, "--rank", "3"], "rank 3 must have iterations in the log, got 'ranks 0'; choose one with --rank"),
        (["--from", "csv"], "trtllm_iter.log, line 1: the heading must name columns"),
    ],
)
def test_a_wrong_request_is_refused_in_words_and_writes_nothing(tmp_path, capsys, options, words):
    out = tmp_path / "x.trace.json.gz"
    assert main(["trace", "import", str(SAMPLES / "trtllm_iter.log"), *options, "-o", str(out)]) == 2
    assert words in capsys.readouterr().err
    assert not out.exists()

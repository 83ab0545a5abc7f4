"""``stepscope trace replay`` at the command line."""

import json

import pytest

from lab.cli.main import main
from lab.replay.step_log import StepLog

KEYS = [
    "requests", "finished", "prompt_tokens", "computed_prompt_tokens", "generated_tokens", "steps", "paused",
    "max_wait_steps", "blocks_leaked", "wall_s",
]  # fmt: skip


@pytest.fixture
def trace_file(tmp_path):
    lines = [f"2023-11-16 18:15:{at:02}.500,{100 + 10 * at},{5 + at}" for at in range(20)]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines, ""]))
    return str(path)


def test_json_is_the_ten_totals_alone_and_the_settings_go_to_stderr(trace_file, capsys):
    assert main(["trace", "replay", trace_file, "--json"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert list(report) == KEYS
    assert report["finished"] == report["requests"] == 20
    assert report["prompt_tokens"] == report["computed_prompt_tokens"] == sum(100 + 10 * at for at in range(20))
    assert report["generated_tokens"] == sum(5 + at for at in range(20))
    assert "cost model, microseconds of a step" in captured.err
    assert "pool: " in captured.err


def test_tables_name_paths_buckets_and_spreads(trace_file, capsys):
    assert main(["trace", "replay", trace_file, "--limit", "5", "--buckets", "2,4", "--cost", "graph.fixed=9"]) == 0
    captured = capsys.readouterr()
    assert "HAS_CONTEXT_UNPROMOTED" in captured.out
    assert "requests a step" in captured.out
    assert "finished: 5\n" in captured.out
    assert "graph: 9 + 10 * rows" in captured.err


def test_a_page_is_written_beside_the_tables(trace_file, tmp_path, capsys):
    target = tmp_path / "page.html"
    assert main(["trace", "replay", trace_file, "--html", str(target)]) == 0
    assert "<h1>Replay of a serving trace</h1>" in target.read_text()
    assert f"written: {target}" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_refused_before_the_work(trace_file, tmp_path, capsys):
    assert main(["trace", "replay", trace_file, "--html", str(tmp_path / "none" / "x.html")]) == 2
    captured = capsys.readouterr()
    assert "cannot write the page" in captured.err
    assert "cost model" not in captured.err


def test_refused_requests_are_named_and_counted(trace_file, capsys):
    assert main(["trace", "replay", trace_file, "--max-seq-len", "250", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["finished"] == 14
    assert "refused, line 16: the request needs 259 tokens, and max_seq_len is 250" in captured.err
    assert captured.err.count("refused, line ") == 5
    assert "refused: 1 more" in captured.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cost", "x=1"], "a cost must be NAME=MICROSECONDS"),
        (["--speed", "0"], "--speed must be a finite number in (0, 1e+06]"),
        (["--max-num-tokens", "10"], "--max-num-tokens must be at least --max-batch-size"),
        (["--buckets", "4,2"], "--buckets must be ascending"),
    ],
)
def test_a_wrong_option_is_one_line_on_stderr(trace_file, capsys, options, message):
    assert main(["trace", "replay", trace_file, *options]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("stepscope: error: ")
    assert message in error


def test_a_bad_line_is_named(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n1,0,5\n")
    assert main(["trace", "replay", str(path)]) == 2
    assert f"{path}, line 2: ContextTokens must be an integer from 1" in capsys.readouterr().err


def test_an_interrupt_prints_what_there_is(trace_file, capsys, monkeypatch):
    def stop(self, _):
        raise KeyboardInterrupt

    monkeypatch.setattr("tqdm.tqdm.update", stop)
    assert main(["trace", "replay", trace_file, "--json"]) == 130
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert 1 <= report["finished"] < 20
    assert captured.err.splitlines()[-1] == "stepscope: interrupted"


def test_counts_below_one_are_refused(trace_file, capsys):
    for option in ("--limit", "--blocks", "--max-seq-len"):
        with pytest.raises(SystemExit):
            main(["trace", "replay", trace_file, option, "0"])
        assert "must be an integer of at least 1, got '0'" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "x", "1,,2", "-3", "1e3", "9" * 5000])
def test_a_list_of_sizes_that_is_none_is_refused_in_words_and_not_by_a_functions_name(trace_file, capsys, text):
    with pytest.raises(SystemExit):
        main(["trace", "replay", trace_file, f"--buckets={text}"])
    error = capsys.readouterr().err.splitlines()[-1]
    assert "argument --buckets: must be an integer of at least 1, got '" in error
    assert len(error) < 200


def test_requests_that_fail_are_said_and_the_exit_status_tells(trace_file, capsys, monkeypatch):
    def broken(self, path):
        raise OverflowError(path)

    monkeypatch.setattr(StepLog, "_see_path", broken)
    assert main(["trace", "replay", trace_file, "--json"]) == 1
    captured = capsys.readouterr()
    assert list(json.loads(captured.out)) == KEYS
    assert "failed: 20 requests, first line 2 after 0 of 5 tokens: OverflowError" in captured.err

"""stepscope trace diff: words, table, JSON, exit status."""

import json

import pytest

from lab.cli.main import main
from tests.lab.sample_steps import sample_trace


@pytest.fixture
def files(tmp_path):
    return [str(sample_trace(count).save(tmp_path / f"{count}.trace.json.gz")) for count in (4, 6)]


def test_two_files_that_differ_are_said_with_a_table(files, capsys):
    assert main(["trace", "diff", *files]) == 1
    out = capsys.readouterr().out
    assert out.startswith(
        "The first difference is in step 4, in the step itself, which one run does not have: – in run A"
    )
    assert out.count("missing") == 2


def test_the_same_file_is_the_same(files, capsys):
    assert main(["trace", "diff", files[0], files[0]]) == 0
    assert capsys.readouterr().out == ("The two runs are the same in all 4 steps: schedule, path, rows and samples.\n")


def test_json_holds_the_first_steps_that_differ(files, capsys):
    assert main(["trace", "diff", *files, "--json", "--most", "1"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["same"], report["count"], [one["at"] for one in report["steps"]]) == (False, 2, [4])


def test_a_file_that_is_no_trace_is_an_error(files, tmp_path, capsys):
    assert main(["trace", "diff", files[0], str(tmp_path / "none.json.gz")]) == 2
    assert "none.json.gz" in capsys.readouterr().err

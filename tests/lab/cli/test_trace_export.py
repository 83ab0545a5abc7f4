import gzip
import json
import re

import pytest

from lab.cli.main import main
from lab.trace import Trace
from tests.lab.sample_steps import sample_trace


@pytest.fixture
def file(tmp_path):
    return sample_trace(6).save(tmp_path / "run.trace.json.gz")


def test_a_page_and_a_timeline_are_written_at_once(file, tmp_path, capsys):
    page, timeline = tmp_path / "run.html", tmp_path / "run.json"
    assert main(["trace", "export", str(file), "--html", str(page), "--perfetto", str(timeline), "--step", "-1"]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert json.loads(timeline.read_text(encoding="utf-8"))["otherData"]["model"] == "tiny"
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"written: {path} ({path.stat().st_size} bytes)" for path in (page, timeline)]


def test_what_is_redacted_is_in_neither(file, tmp_path):
    page, timeline = tmp_path / "run.html", tmp_path / "run.json"
    out = ["--html", str(page), "--perfetto", str(timeline)]
    assert "a secret prompt" in Trace.load(file).header.requests[0].prompt_text
    assert main(["trace", "export", str(file), *out, "--redact"]) == 0
    texts = [
        event["args"]["text"] for event in json.loads(timeline.read_text())["traceEvents"] if event["name"] == "token"
    ]
    assert set(texts) == {""}


def test_a_stage_is_named_or_numbered(file, tmp_path):
    page = tmp_path / "run.html"
    for stage in ("3", "GRAPH_CHOSEN", "Choose graph"):
        assert main(["trace", "export", str(file), "--html", str(page), "--stage", stage]) == 0
        assert '"stage": 3' in page.read_text(encoding="utf-8")


def test_the_page_is_in_the_language_and_colours_that_were_asked_for(file, tmp_path):
    page = tmp_path / "run.html"
    assert main(["trace", "export", str(file), "--html", str(page), "--language", "zh", "--dark"]) == 0
    text = page.read_text(encoding="utf-8")
    assert '<html lang="zh">' in text
    assert 'data-jp-theme-light="false"' in text.split("<main")[0].rsplit("<body", 1)[1]


def test_a_teacher_s_page_hides_parts_has_notes_and_large_type(file, tmp_path):
    page, notes = tmp_path / "run.html", tmp_path / "notes.json"
    notes.write_text(json.dumps({"-1/packed": "Count </script> the rows.", "*": "All"}), encoding="utf-8")
    options = ["--step", "2", "--mask", "key", "PACKED", "--notes", str(notes), "--large"]
    assert main(["trace", "export", str(file), "--html", str(page), *options]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("</script>") == 1
    state = json.loads(re.search(r"^const state = (.*);$", text, re.MULTILINE)[1])
    assert state["mask"] == {"key": ["key", "checklist", "stage.7"], "stage.4": ["stage.4"]}
    assert state["notes"] == {"5/4": "Count </script> the rows.", "": "All"}
    assert state["large"] is True


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "say what to write: --html OUT for a page that steps, --perfetto OUT for a timeline, or both"),
        (["--html", "no/such/folder/x.html"], "it is no file in an existing folder"),
        (
            ["--html", "OUT", "--step", "6"],
            "--step must be a step's number, 0 to 5, or -6 to -1, counted from",
        ),
        (["--html", "OUT", "--stage", "lunch"], "stage must be 0 to"),
        (["--html", "OUT", "--mask", "keys"], "mask hides any of path, reason, bucket, key, checklist, deferrals"),
        (["--html", "OUT", "--notes", "no/such.txt"], "cannot read notes from 'no/such.txt': No such"),
        (["--html", "OUT", "--max-steps", "0"], "a page holds 1 to 10000 steps, got --max-steps 0"),
        (["--html", "OUT", "--stage", "9" * 5000], "stage must be 0 to"),
        (["--html", "OUT", "--step", "9" * 400], "counted from the end, got 9999"),
        (["--html", "OUT", "--perfetto", "OUT"], "--html and --perfetto must be two files, got"),
        (["--perfetto", "OUT", "--mask", "path", "--large"], "--mask, --large is for a page, and a timeline has none"),
    ],
)
def test_a_wrong_request_is_refused_in_words_and_writes_nothing(file, tmp_path, capsys, options, words):
    page = tmp_path / "run.html"
    assert main(["trace", "export", str(file), *[str(page) if one == "OUT" else one for one in options]]) == 2
    assert words in capsys.readouterr().err
    assert not page.exists()


def test_a_note_at_a_step_that_is_not_there_is_refused_with_those_that_are(file, tmp_path, capsys):
    notes = tmp_path / "notes.json"
    notes.write_text('{"9": "text"}', encoding="utf-8")
    assert main(["trace", "export", str(file), "--html", str(tmp_path / "x.html"), "--notes", str(notes)]) == 2
    assert "a note's step must be a step's number, 0 to 5, or -6 to -1" in capsys.readouterr().err


def test_masks_that_are_given_one_by_one_all_hold(file, tmp_path):
    page = tmp_path / "x.html"
    hide = ["--mask", "path", "reason", "--mask", "next", "--mask", "next"]
    assert main(["trace", "export", str(file), "--html", str(page), *hide]) == 0
    mask = page.read_text(encoding="utf-8").partition('"mask": ')[2]
    assert set(json.JSONDecoder().raw_decode(mask)[0]) == {"path", "reason", "next"}


@pytest.mark.parametrize(("old", "new"), [("C", "Q"), ("replay", 5)])
def test_a_string_that_makes_no_sense_is_a_damaged_trace_on_every_way_in(old, new, file, tmp_path, capsys):
    content = json.loads(gzip.decompress(file.read_bytes()))
    strings = content["steps"]["strings"]
    strings[strings.index(old)] = new
    file.write_bytes(gzip.compress(json.dumps(content).encode()))
    for action in (["check"], ["show"], ["show", "--step", "0"], ["export", "--html", str(tmp_path / "p.html")]):
        assert main(["trace", action[0], str(file), *action[1:]]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "damaged" in captured.err
        assert captured.err.endswith("; record it again\n")

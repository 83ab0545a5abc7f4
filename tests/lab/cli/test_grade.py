"""stepscope release, grade, report and sync-nbgrader, one after the other on a small class."""

import csv
import json

import pytest

from lab.classroom.course import read_course
from lab.cli.main import main
from tests.exercises.classes import notebook, only_answers, source_of, write

COURSE = """
[course]
id = "testing"
seed = "course seed"
[[students]]
id = "ada"
[[students]]
id = "bo"
"""


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A folder with a course, a seed and the submissions of two students."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "course.toml").write_text(COURSE, encoding="utf-8")
    (tmp_path / "seed.toml").write_text('seed = "a secret seed"\n', encoding="utf-8")
    course = read_course("course.toml")
    for number, student in enumerate(("ada", "bo")):
        source = source_of("ex16", "wrong", number, course.rule("ex16"))
        write(tmp_path / "in", student, "ps3", only_answers(notebook(course, "ps3", {"ex16": source}), "ex16"))
    return tmp_path


GRADE = ["grade", "in", "--course", "course.toml", "--seed-file", "seed.toml"]


def test_a_class_is_graded_regraded_and_reported(room, capsys):
    assert main([*GRADE, "--diff"]) == 0
    assert "ada  ex16  new -> " in capsys.readouterr().out
    assert main(GRADE) == 0
    assert "written: grades/gradebook.json and gradebook.csv" in capsys.readouterr().out
    before = (room / "grades/gradebook.json").read_bytes()
    assert main([*GRADE, "--only", "ex16", "--diff"]) == 0
    assert capsys.readouterr().out == "no mark moves\n"
    assert main([*GRADE, "--only", "ex16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    [ada] = [e for e in json.loads(before)["entries"] if e["student_id"] == "ada"]
    [own] = [g for g in ada["exercises"] if g["exercise"] == "ex16"]
    assert f"ada  ex16  {own['points']} of 6  (ps3: {ada['score']:g} of {ada['max_score']:g})" in lines
    assert (room / "grades/gradebook.json").read_bytes() == before
    with (room / "grades/gradebook.csv").open(encoding="utf-8", newline="") as file:
        assert [row["student_id"] for row in csv.DictReader(file)] == ["ada", "bo"]
    assert main(["report", "grades"]) == 0
    assert "students: 2 pages in grades/report/students" in capsys.readouterr().out
    assert main([*GRADE, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["entries"]) == 2


def test_only_needs_a_gradebook_that_is_there(room, capsys):
    assert main([*GRADE, "--only", "ex16"]) == 2
    assert "--only changes a gradebook that is there" in capsys.readouterr().err
    assert main([*GRADE, "--only", "ex16", "--diff"]) == 0
    assert "ada  ex16  new -> " in capsys.readouterr().out


def test_one_who_is_not_in_the_gradebook_yet_is_not_left_out_in_silence(room, capsys):
    (room / "in/bo").rename(room / "bo")
    assert main(GRADE) == 0
    (room / "bo").rename(room / "in/bo")
    assert main([*GRADE, "--only", "ex16"]) == 0
    assert "bo  ps3  not in the gradebook yet, and left out: grade without --only" in capsys.readouterr().out


def test_what_is_missing_is_said(room, capsys):
    assert main(["grade", "none", "--course", "course.toml", "--seed-file", "seed.toml"]) == 2
    assert main(["grade", "in", "--course", "none.toml", "--seed-file", "seed.toml"]) == 2
    assert main(["report", "none"]) == 2
    error = capsys.readouterr().err
    assert "there is no folder none" in error
    assert "cannot read a course file from none.toml: No such file or directory\n" in error
    assert "`stepscope grade` writes it" in error

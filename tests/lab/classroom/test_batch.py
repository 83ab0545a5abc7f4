"""Grading a folder: found, graded twice the same, gone on with."""

import json
import shutil

import pytest

from engine.errors import ExerciseError
from lab.classroom import batch
from lab.classroom.batch import find_submissions, grade_all
from lab.classroom.gradebook import write_gradebook
from tests.exercises.classes import SEED, course, notebook, only_answers, source_of, write, write_class

COURSE = course("ada", "bo", "cy")


def test_submissions_are_found_in_three_layouts(tmp_path):
    raw = notebook(COURSE, "ps3", {})
    write(tmp_path, "ada", "ps3", raw)
    (tmp_path / "bo").mkdir()
    (tmp_path / "bo" / "mine.ipynb").write_text(json.dumps(raw), encoding="utf-8")
    (tmp_path / "cy.ipynb").write_text(json.dumps(raw), encoding="utf-8")
    (tmp_path / "ada/ps3/.ipynb_checkpoints").mkdir()
    (tmp_path / "ada/ps3/.ipynb_checkpoints/ps3.ipynb").write_text("{}", encoding="utf-8")
    (tmp_path / "ada/ps3/timestamp.txt").write_text("2026-12-01 10:00 UTC\n", encoding="utf-8")
    found = find_submissions(tmp_path)
    assert [(one.student, one.set_name, len(one.paths)) for one in found] == [
        ("ada", "ps3", 1),
        ("bo", "ps3", 1),
        ("cy", "ps3", 1),
    ]
    assert [one.timestamp for one in found] == ["2026-12-01 10:00 UTC", "", ""]
    with pytest.raises(ExerciseError, match="there are no notebooks of a problem set"):
        find_submissions(tmp_path, "ps1")
    with pytest.raises(ExerciseError, match="there is no problem set 'ps9'"):
        find_submissions(tmp_path, "ps9")
    with pytest.raises(ExerciseError, match="there is no folder"):
        find_submissions(tmp_path / "none")


@pytest.mark.slow
def test_grading_twice_gives_the_same_bytes_and_keeps_times_apart(tmp_path):
    write_class(tmp_path / "in", COURSE, "ps3")
    found = find_submissions(tmp_path / "in")
    books = []
    for name in ("a", "b"):
        write_gradebook(tmp_path / name, COURSE, grade_all(found, COURSE, tmp_path / name, seed=SEED, quiet=True))
        books.append([(tmp_path / name / file).read_bytes() for file in ("gradebook.json", "gradebook.csv")])
        assert json.loads((tmp_path / name / "timings.json").read_text(encoding="utf-8"))
    assert books[0] == books[1]


def test_an_interrupted_grading_goes_on_where_it_stopped(tmp_path, monkeypatch):
    sources = {name: source_of(name, "solution", 0, COURSE.rule(name)) for name in ("ex16", "ex19")}
    write(tmp_path / "in", "ada", "ps3", only_answers(notebook(COURSE, "ps3", sources), "ex16", "ex19"))
    found = find_submissions(tmp_path / "in")
    first = grade_all(found, COURSE, tmp_path, seed=SEED, quiet=True)
    kept = sorted((tmp_path / "graded").iterdir())
    assert len(kept) == 4
    kept[0].unlink()
    asked = []
    run = batch._run
    monkeypatch.setattr(batch, "_run", lambda jobs, *a, **k: asked.append(len(jobs)) or run(jobs, *a, **k))
    assert grade_all(found, COURSE, tmp_path, seed=SEED, quiet=True) == first
    assert asked == [1]
    shutil.rmtree(tmp_path / "graded")
    only = grade_all(found, COURSE, tmp_path, seed=SEED, only="ex16", quiet=True)
    assert [graded["exercise"] for graded in only[0]["exercises"]] == ["ex16"]

"""The gradebook's files."""

import csv

import pytest

from engine.errors import ExerciseError
from lab.classroom.gradebook import COLUMNS, entry, moves, read_gradebook, write_gradebook
from tests.exercises.classes import course

COURSE = course("ada", due={"ps3": "2026-12-14"})


def _graded(points):
    return {"exercise": "ex16", "points": points, "max_points": 6}


def test_the_csv_has_nbgraders_columns(tmp_path):
    write_gradebook(tmp_path, COURSE, [entry(COURSE, "ps3", "ada", [_graded(4)], "2026-12-01 10:00 UTC")])
    with (tmp_path / "gradebook.csv").open(encoding="utf-8", newline="") as file:
        [row] = csv.DictReader(file)
    assert tuple(row) == COLUMNS
    assert row == {
        "assignment": "ps3",
        "duedate": "2026-12-14",
        "timestamp": "2026-12-01 10:00 UTC",
        "student_id": "ada",
        "last_name": "",
        "first_name": "Ada",
        "email": "ada@example.org",
        "raw_score": "4.0",
        "late_submission_penalty": "0.0",
        "score": "4.0",
        "max_score": "6.0",
    }


def test_entries_stand_in_order_whatever_the_order_of_grading(tmp_path):
    both = [entry(COURSE, "ps3", name, [_graded(1)], "") for name in ("zoe", "ada")]
    write_gradebook(tmp_path / "a", COURSE, both)
    write_gradebook(tmp_path / "b", COURSE, both[::-1])
    for name in ("gradebook.json", "gradebook.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert [one["student_id"] for one in read_gradebook(tmp_path / "a")["entries"]] == ["ada", "zoe"]


def test_moves_name_student_exercise_and_both_marks():
    before = {"entries": [entry(COURSE, "ps3", "ada", [_graded(4)], "")]}
    assert moves(before, [entry(COURSE, "ps3", "ada", [_graded(4)], "")]) == []
    assert moves(before, [entry(COURSE, "ps3", "ada", [_graded(6)], "")]) == ["ada  ex16  4 -> 6"]
    assert moves(None, [entry(COURSE, "ps3", "bo", [_graded(2)], "")]) == ["bo  ex16  new -> 2"]


def test_a_gradebook_that_is_none_is_refused(tmp_path):
    with pytest.raises(
        ExerciseError, match=r"gradebook\.json: No such file or directory; `stepscope grade` writes it$"
    ):
        read_gradebook(tmp_path)
    (tmp_path / "gradebook.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ExerciseError, match="is no gradebook"):
        read_gradebook(tmp_path)

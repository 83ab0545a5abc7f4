"""Writing marks into nbgrader's gradebook; nbgrader itself is an extra, so here its interface is a stand-in."""

import sys
from types import SimpleNamespace

import pytest

from engine.errors import ExerciseError
from lab.classroom.gradebook import entry
from lab.classroom.nbgrader_sync import sync
from tests.exercises.classes import course

COURSE = course("ada")
BOOK = {
    "course": "testing",
    "entries": [entry(COURSE, "ps3", "ada", [{"exercise": "ex16", "points": 4, "max_points": 6}], "")],
}


class Gradebook:
    """The calls that sync makes, remembered."""

    last = None

    def __init__(self, database):
        self.calls, self.grades = [database], {}
        self.db = SimpleNamespace(add=self._add, commit=lambda: self.calls.append("commit"))
        Gradebook.last = self

    def _add(self, grade):
        self.grades[grade.cell.name] = grade

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def __getattr__(self, name):
        return lambda *a, **k: self.calls.append((name, a, k))

    def find_submission_notebook(self, *_):
        return SimpleNamespace(grades=[])

    def find_notebook(self, *_):
        return SimpleNamespace(grade_cells=[SimpleNamespace(name="ex16-check"), SimpleNamespace(name="ps3-open")])

    def find_grade(self, cell, *_):
        return self.grades[cell]


def test_each_exercise_becomes_the_score_of_its_check_cell(monkeypatch):
    api = SimpleNamespace(Gradebook=Gradebook, Grade=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "nbgrader", SimpleNamespace(api=api))
    monkeypatch.setitem(sys.modules, "nbgrader.api", api)
    assert sync(BOOK, "sqlite:///x.db") == 1
    assert Gradebook.last.grades["ex16-check"].auto_score == 4.0
    assert (
        "update_or_create_student",
        ("ada",),
        {"first_name": "Ada", "email": "ada@example.org"},
    ) in Gradebook.last.calls
    assert Gradebook.last.calls[-1] == "commit"


def test_without_nbgrader_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "nbgrader", None)
    monkeypatch.setitem(sys.modules, "nbgrader.api", None)
    with pytest.raises(ExerciseError, match=r"pip install -e '.\[classroom\]'"):
        sync(BOOK, "sqlite:///x.db")


def test_a_database_that_refuses_is_said(monkeypatch):
    def refuse(_):
        message = "locked"
        raise OSError(message)

    api = SimpleNamespace(Gradebook=refuse)
    monkeypatch.setitem(sys.modules, "nbgrader", SimpleNamespace(api=api))
    monkeypatch.setitem(sys.modules, "nbgrader.api", api)
    with pytest.raises(ExerciseError, match="cannot be written: OSError: locked"):
        sync(BOOK, "sqlite:///x.db")

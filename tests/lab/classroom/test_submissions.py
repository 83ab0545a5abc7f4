"""Finding answers in notebooks."""

import json

import pytest

from engine.errors import ExerciseError
from lab.classroom.submissions import read_notebook, read_submission, rule_named
from tests.exercises.classes import cell_of, course, free_cell, notebook

COURSE = course("ada")
RIGHT = "def bucket_for(sizes, batch):\n    return batch\n"


def _read(raw):
    return read_notebook(json.dumps(raw), ("ex16",))["ex16"]


def test_an_answer_is_found_by_its_cell():
    assert _read(notebook(COURSE, "ps3", {"ex16": RIGHT})).source == RIGHT.rstrip("\n")


def test_the_rule_is_that_of_the_check_cell():
    raw = notebook(COURSE, "ps3", {"ex16": RIGHT})
    found = {name: rule_named(json.dumps(raw), name) for name in COURSE.exercises("ps3")}
    assert found == {name: COURSE.rule(name) for name in COURSE.exercises("ps3")}
    assert set(found.values()) == {"a", "b"}
    raw["cells"].remove(cell_of(raw, "ex16-check"))
    assert rule_named(json.dumps(raw), "ex16") is None


def test_source_may_be_a_list_of_lines():
    raw = notebook(COURSE, "ps3", {"ex16": RIGHT.splitlines(keepends=True)})
    assert _read(raw).source == RIGHT.rstrip("\n")


def test_only_definitions_that_are_needed_are_taken_from_other_cells():
    raw = notebook(COURSE, "ps3", {"ex16": "def bucket_for(sizes, batch):\n    return helper(batch) + LIMIT\n"})
    raw["cells"] += [
        free_cell("import math\nLIMIT = 3\nOTHER = 4\nraise SystemExit"),
        free_cell("@cached\ndef helper(n):\n    return math.ceil(n)\n\ndef cached(f):\n    return f\n"),
    ]
    answer = _read(raw)
    assert answer.notes == ("taken from other cells: math, LIMIT, helper, cached",)
    assert "OTHER" not in answer.source
    assert "SystemExit" not in answer.source
    assert "@cached\ndef helper" in answer.source


def test_an_assigned_function_counts():
    assert _read(notebook(COURSE, "ps3", {"ex16": "bucket_for = lambda sizes, batch: batch"})).notes == ()


def test_a_cell_that_is_no_python_is_said():
    answer = _read(notebook(COURSE, "ps3", {"ex16": "def bucket_for(:"}))
    assert answer.notes == ("the answer cell is no Python",)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": 3}', "[" * 100_000])
def test_a_text_that_is_no_notebook_is_refused(text):
    with pytest.raises(ExerciseError, match="this is no notebook"):
        read_notebook(text, ("ex16",))


def test_odd_cells_are_borne():
    raw = {"cells": [3, {}, {"cell_type": "code", "metadata": None, "source": None}, free_cell(RIGHT)]}
    assert _read(raw).source == RIGHT.rstrip("\n")


def test_the_first_of_several_notebooks_that_has_an_answer_counts(tmp_path):
    empty = notebook(COURSE, "ps3", {})
    empty["cells"].remove(cell_of(empty, "ex16-answer"))
    paths = []
    for name, text in (
        ("a", "no"),
        ("b", json.dumps(empty)),
        ("c", json.dumps(notebook(COURSE, "ps3", {"ex16": RIGHT}))),
    ):
        paths.append(tmp_path / f"{name}.ipynb")
        paths[-1].write_text(text, encoding="utf-8")
    assert read_submission(paths, ("ex16",))["ex16"].source == RIGHT.rstrip("\n")
    assert "a.ipynb cannot be read: this is no notebook" in read_submission(paths[:1], ("ex16",))["ex16"].notes[0]


def test_what_is_no_file_is_said_in_the_notes(tmp_path):
    notes = read_submission([tmp_path], ("ex16",))["ex16"].notes
    assert notes == (f"{tmp_path.name} cannot be read: Is a directory",)

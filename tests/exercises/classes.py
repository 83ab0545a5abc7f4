"""Generated classes: notebooks as students would hand them in.

Does not: grade.
"""

import copy
import json

from lab.classroom.course import Course, Student
from lab.classroom.notebooks import student_notebook
from lab.exercises.catalogue import load
from tests.exercises.answers import answers

SEED = "the seed of a test class"


def course(*students, per_student=False, due=None):
    """A course with these students."""
    listed = tuple(Student(name, name.title(), "", f"{name}@example.org") for name in students)
    return Course("testing", "course seed", per_student, False, listed, due or {})


def source_of(exercise_id, kind, number, rule):
    """One of the answers, as a learner's cell."""
    exercise = load(exercise_id)
    return answers(exercise, kind)[number].as_submission(exercise.meta.entry, rule)


def notebook(which, set_name, sources, *, student=""):
    """The released notebook with the sources in its answer cells; a dictionary, as it lies in the file."""
    raw = json.loads(json.dumps(student_notebook(which, set_name, student)))
    for cell in raw["cells"]:
        name = cell["metadata"]["nbgrader"]["grade_id"].removesuffix("-answer")
        if name in sources and cell["metadata"]["nbgrader"]["grade_id"].endswith("-answer"):
            cell["source"] = sources[name]
    return raw


def cell_of(raw, grade_id):
    """The cell with this id."""
    return next(cell for cell in raw["cells"] if cell["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)


def only_answers(raw, *names):
    """The notebook with the answer cells of these exercises alone."""
    ids = [f"{name}-answer" for name in names]
    found = [cell["metadata"]["nbgrader"]["grade_id"] for cell in raw["cells"]]
    cells = [c for c, one in zip(raw["cells"], found, strict=True) if one in ids or not one.endswith("-answer")]
    return {**raw, "cells": cells}


def free_cell(text):
    """A code cell that a student added."""
    return {"cell_type": "code", "metadata": {}, "source": text, "outputs": [], "execution_count": None}


def write(folder, student, set_name, raw):
    """Put a notebook where nbgrader would collect it."""
    path = folder / student / set_name / f"{set_name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(copy.deepcopy(raw)), encoding="utf-8")
    return path


def write_class(folder, which, set_name):
    """Every student gets right answers, but for one wrong idea that goes round with the student's number."""
    names = which.exercises(set_name)
    for number, student in enumerate(which.students):
        sources = {}
        for at, name in enumerate(names):
            rule = which.rule(name, student.id)
            count = len(answers(load(name), "wrong"))
            is_wrong = (number + at) % 3 == 0
            sources[name] = source_of(
                name, "wrong" if is_wrong else "solution", number % count if is_wrong else 0, rule
            )
        write(folder, student.id, set_name, notebook(which, set_name, sources, student=student.id))

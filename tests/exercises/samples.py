"""Five sample submissions of the first problem set, for the teacher's notebook: one of each kind that a teacher meets.

Does not: grade.
"""

from pathlib import Path

from lab.classroom.course import Course
from tests.exercises.classes import cell_of, free_cell, notebook, only_answers, source_of, write

SET = "ps1"
OVERTAKES = ("ex02", 4)  # an exercise, and the place of the wrong idea in its file
DRAFTS_ALONE = ("ex01", 1)
REWRITTEN, LOST, LOOPING = "ex02", "ex03", "ex03"
LOOP = """
def cut(prompt, cached, rows, unit):
    chunks, start = [], cached
    while start < prompt:
        length = min(prompt - start, rows)
        chunks.append([start, length, start + length == prompt])
    return chunks
"""


def write_samples(folder: Path, which: Course) -> dict[str, str]:
    """Write the five notebooks as nbgrader collects them. Returns: student -> what is special about the submission."""
    solved = _all(which, "solution")
    overtakes = {**solved, **_wrong(which, *OVERTAKES)}
    write(folder, "ada", SET, notebook(which, SET, solved))
    write(folder, "bo", SET, notebook(which, SET, {**overtakes, **_wrong(which, *DRAFTS_ALONE)}))
    write(folder, "cy", SET, _with_lost_cells(which, solved))
    write(folder, "dee", SET, notebook(which, SET, {**overtakes, LOOPING: LOOP}))
    write(folder, "eli", SET, notebook(which, SET, _all(which, "right")))
    return {
        "ada": "all right",
        "bo": f"wrong in {DRAFTS_ALONE[0]} and {OVERTAKES[0]}, in ways that have names",
        "cy": f"deleted the answer cells of {REWRITTEN} and {LOST}; wrote {REWRITTEN} again in a cell of her own",
        "dee": f"loops for ever in {LOOPING}; wrong in {OVERTAKES[0]}, as bo",
        "eli": "all right, each in another way",
    }


def hand_in_again(folder: Path, which: Course) -> None:
    """Replace the submission that loops by one that ends, and is right there."""
    write(folder, "dee", SET, notebook(which, SET, {**_all(which, "solution"), **_wrong(which, *OVERTAKES)}))


def _all(which, kind):
    """The first answer of a kind to every exercise."""
    return {name: source_of(name, kind, 0, which.rule(name)) for name in which.exercises(SET)}


def _wrong(which, name, number):
    return {name: source_of(name, "wrong", number, which.rule(name))}


def _with_lost_cells(which, solved):
    """The notebook without two of its answer cells; one of the functions stands in a cell that the student added."""
    raw = notebook(which, SET, solved)
    text = cell_of(raw, f"{REWRITTEN}-answer")["source"]
    kept = only_answers(raw, *(name for name in solved if name not in (REWRITTEN, LOST)))
    return {**kept, "cells": [*kept["cells"], free_cell(text)]}

"""The gradebook: what every student got, as JSON with each check, and as CSV with nbgrader's columns.

Both are written in a fixed order and hold no time of grading, so grading again gives the same bytes.

Does not: grade, or decide what a late submission costs (``score`` is ``raw_score``; the column of penalties is there).
"""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from engine.errors import ExerciseError
from lab.classroom.course import Course

GRADEBOOK: Final = "gradebook.json"
CSV: Final = "gradebook.csv"
COLUMNS: Final = (
    "assignment",
    "duedate",
    "timestamp",
    "student_id",
    "last_name",
    "first_name",
    "email",
    "raw_score",
    "late_submission_penalty",
    "score",
    "max_score",
)


def entry(
    course: Course, set_name: str, student_id: str, graded: list[dict[str, Any]], timestamp: str
) -> dict[str, Any]:
    """Return one student's entry for one problem set."""
    student = course.student(student_id)
    points = float(sum(one["points"] for one in graded))
    return {
        "assignment": set_name,
        "duedate": course.due.get(set_name, ""),
        "timestamp": timestamp,
        "student_id": student.id,
        "last_name": student.last_name,
        "first_name": student.first_name,
        "email": student.email,
        "raw_score": points,
        "late_submission_penalty": 0.0,
        "score": points,
        "max_score": float(sum(one["max_points"] for one in graded)),
        "exercises": graded,
    }


def write_gradebook(folder: Path, course: Course, entries: list[dict[str, Any]]) -> None:
    """Write both files, in the order of assignments and students."""
    ordered = sorted(entries, key=lambda one: (one["assignment"], one["student_id"]))
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"course": course.id, "entries": ordered}, indent=1, sort_keys=True, ensure_ascii=False)
    (folder / GRADEBOOK).write_text(text + "\n", encoding="utf-8")
    with (folder / CSV).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([one[name] for name in COLUMNS] for one in ordered)


def read_gradebook(folder: Path) -> dict[str, Any]:
    """Return the gradebook that lies in a folder. Raises: ExerciseError."""
    path = folder / GRADEBOOK
    try:
        book = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        message = f"cannot read a gradebook from {path}: {why}; `stepscope grade` writes it"
        raise ExerciseError(message) from error
    if not isinstance(book, dict) or "entries" not in book:
        message = f"{path} is no gradebook; `stepscope grade` writes it"
        raise ExerciseError(message)
    return book  # pyright: ignore[reportUnknownVariableType]


def moves(before: Mapping[str, Any] | None, entries: list[dict[str, Any]]) -> list[str]:
    """Return a line for each mark that differs from an earlier gradebook's."""
    old: dict[tuple[str, str, str], int] = {}
    for one in (before or {"entries": []})["entries"]:
        old.update({(one["assignment"], one["student_id"], e["exercise"]): e["points"] for e in one["exercises"]})
    lines: list[str] = []
    for one in sorted(entries, key=lambda e: (e["assignment"], e["student_id"])):
        for graded in one["exercises"]:
            was = old.get((one["assignment"], one["student_id"], graded["exercise"]))
            if was != graded["points"]:
                shown = "new" if was is None else str(was)
                lines.append(f"{one['student_id']}  {graded['exercise']}  {shown} -> {graded['points']}")
    return lines

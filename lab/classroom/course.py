"""The course file: what a course is called, its seed, who takes it, and which version of a rule somebody gets.

    [course]
    id = "serving-2026"
    seed = "any text; it chooses the versions of the rules"
    rules = "course"            # or "student": a version for each student, from the student's id
    [[students]]
    id = "ada"                  # first_name, last_name and email may follow
    [due]
    ps1 = "2026-12-14"

Does not: hold the seed of hidden checks, which a bundle must not know; that is a file of its own.
"""

import dataclasses
import datetime as dt
import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from engine.errors import ExerciseError
from engine.fields import shown
from lab.exercises.catalogue import load, problem_set, problem_sets

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Student:
    """One student, with nbgrader's fields."""

    id: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Course:
    """One course. is_per_student: each student gets versions of their own. due: dates by problem set."""

    id: str
    seed: str
    is_per_student: bool
    include_further: bool
    students: tuple[Student, ...]
    due: Mapping[str, str]

    def exercises(self, set_name: str) -> tuple[str, ...]:
        """Return the ids of a problem set's graded exercises. Raises: ExerciseError."""
        chosen = problem_set(set_name)
        return (*chosen["exercises"], *(chosen["further"] if self.include_further else ()))

    def rule(self, exercise: str, student: str = "") -> str:
        """Return the version of an exercise's rule: the course's, or this student's."""
        rules = load(exercise).meta.rules
        whose = student if self.is_per_student else ""
        digest = hashlib.sha256(f"{self.seed}|{exercise}|{whose}".encode()).digest()
        return rules[digest[0] % len(rules)].id

    def student(self, student_id: str) -> Student:
        """Return a student; one who is not in the list has an id only."""
        return next((one for one in self.students if one.id == student_id), Student(student_id))


def read_course(path: str | Path) -> Course:
    """Read a course file. Raises: ExerciseError, with what is missing or wrong."""
    table = read_toml(path, "a course file")
    course = table.get("course", {})
    for name in ("id", "seed"):
        if not isinstance(course.get(name), str) or not course[name]:
            message = f'{path}: [course] needs {name} = "...", got {shown(course.get(name))}'
            raise ExerciseError(message)
    _check_name(course["id"], f"{path}: the course's id")
    rules = course.get("rules", "course")
    if rules not in ("course", "student"):
        message = f'{path}: rules must be "course" or "student", got {shown(rules)}'
        raise ExerciseError(message)
    students = tuple(_student(path, entry) for entry in table.get("students", ()))
    ids = [one.id for one in students]
    twice = next((one for one in ids if ids.count(one) > 1), None)
    if twice is not None:
        message = f"{path}: the student {shown(twice)} is listed twice"
        raise ExerciseError(message)
    due = {name: _date(path, name, value) for name, value in table.get("due", {}).items()}
    return Course(
        id=course["id"],
        seed=course["seed"],
        is_per_student=rules == "student",
        include_further=bool(course.get("include_further", False)),
        students=students,
        due=due,
    )


def read_seed(path: str | Path) -> str:
    """Read the seed of the hidden checks: a file with ``seed = "..."``. Raises: ExerciseError."""
    seed = read_toml(path, "a seed file").get("seed")
    if not isinstance(seed, str) or len(seed) < 8:
        message = f'{path}: a seed file needs seed = "..." of at least 8 characters, got {shown(seed)}'
        raise ExerciseError(message)
    return seed


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """Read a TOML file. Raises: ExerciseError."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"cannot read {what} from {path}: {getattr(error, 'strerror', None) or error}"
        raise ExerciseError(message) from error


def _student(path: str | Path, entry: dict[str, Any]) -> Student:
    fields = {name: str(entry.get(name, "")) for name in ("id", "first_name", "last_name", "email")}
    _check_name(fields["id"], f"{path}: a student's id")
    return Student(**fields)


def _check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        message = f"{what} must consist of letters, digits, dots, dashes and underscores, got {shown(name)}"
        raise ExerciseError(message)


def _date(path: str | Path, name: str, value: object) -> str:
    if name not in problem_sets():
        message = f"{path}: [due] names {shown(name)}; there are {', '.join(problem_sets())}"
        raise ExerciseError(message)
    try:
        return value.isoformat() if isinstance(value, dt.date) else dt.date.fromisoformat(str(value)).isoformat()
    except ValueError as error:
        message = f"{path}: the due date of {name} must be YYYY-MM-DD, got {shown(value)}"
        raise ExerciseError(message) from error

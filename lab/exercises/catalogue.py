"""Every exercise, by id: found on disk, read when asked for.

Does not: import an exercise's properties before that exercise is loaded, so listing them needs no hypothesis.
"""

import functools
import importlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from engine.errors import ExerciseError
from engine.fields import shown
from lab.exercises.exercise import Checks, Exercise, Meta, Places, Rule

ROOT: Final = Path(__file__).resolve().parent
MODULES: Final = (
    *("abc", "bisect", "collections", "copy", "dataclasses", "enum", "functools", "heapq", "itertools", "math"),
    *("operator", "random", "re", "string", "typing"),
)


def exercise_names() -> dict[str, str]:
    """Return id -> folder name of every exercise, in order."""
    return {path.name.partition("_")[0]: path.name for path in sorted(ROOT.glob("ex[0-9][0-9]_*")) if path.is_dir()}


def exercise_id(name: str) -> str:
    """Return the id that a user means: ex07, ex7, 7, or the folder's name. Raises: ExerciseError."""
    match = re.fullmatch(r"(?:ex)?0*(\d{1,2})(?:_\w*)?", str(name).strip().lower())
    found = f"ex{int(match[1]):02d}" if match else ""
    known = exercise_names()
    if found not in known:
        message = f"there is no exercise {shown(name)}; there are {', '.join(known)}"
        raise ExerciseError(message)
    return found


@functools.cache
def load(name: str) -> Exercise:
    """Return one exercise. Raises: ExerciseError for a name that is none."""
    found = exercise_id(name)
    folder = ROOT / exercise_names()[found]
    try:
        module = importlib.import_module(f"lab.exercises.{folder.name}.properties")
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        message = "checks need the package hypothesis; install it with `pip install hypothesis`"
        raise ExerciseError(message) from error
    checks: Checks = module.checks
    path = folder / "visible.json"
    visible = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"cases": [], "misconceptions": {}}
    return Exercise(id=found, folder=folder, meta=_meta(folder), checks=checks, visible=visible)


def _meta(folder: Path) -> Meta:
    table: dict[str, Any] = tomllib.loads((folder / "meta.toml").read_text(encoding="utf-8"))
    first, second, third = table["hints"]
    return Meta(
        title=table["title"],
        title_zh=table["title_zh"],
        entry=table["entry"],
        points=table["points"],
        minutes=table["minutes"],
        seconds=float(table.get("seconds", 2.0)),
        hidden=tuple(table["hidden"]),
        hints=(first, second, third),
        rules=tuple(Rule(key, text) for key, text in table["rules"].items()),
        modules=(*MODULES, *table.get("modules", ())),
        places=Places(table["article"], table["walkthrough"], table.get("modelled_on", "")),
    )


@functools.cache
def course_rules() -> dict[str, str]:
    """Return the versions of the rules that a course chose for all: ``rules.toml`` of a release."""
    path = ROOT / "rules.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def rule_of(exercise: Exercise, rule: str | None) -> str:
    """Return the rule's id: the given one if it exists; for None the course's, or the first. Raises: ExerciseError."""
    known = [one.id for one in exercise.meta.rules]
    if rule is None:
        return course_rules().get(exercise.id, known[0])
    if rule not in known:
        message = (
            f"{exercise.id} has the rules {', '.join(known)}, got {shown(rule)}; your notebook or file names yours"
        )
        raise ExerciseError(message)
    return rule


@functools.cache
def problem_sets() -> dict[str, dict[str, Any]]:
    """Return the problem sets of ``sets.toml``: title, exercises, further exercises, open question, rubric, points."""
    return tomllib.loads((ROOT / "sets.toml").read_text(encoding="utf-8"))


def problem_set(name: str) -> dict[str, Any]:
    """Return one problem set. Raises: ExerciseError."""
    known = problem_sets()
    if name not in known:
        message = f"there is no problem set {shown(name)}; there are {', '.join(known)}"
        raise ExerciseError(message)
    return known[name]


def next_after(found: str) -> str | None:
    """Return the id of the exercise after this one, or None after the last."""
    known = list(exercise_names())
    at = known.index(found) + 1
    return known[at] if at < len(known) else None

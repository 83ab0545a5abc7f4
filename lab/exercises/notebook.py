"""The exercises in a notebook's cells: ``check("ex16", bucket_for)``, ``predict``, ``hint``, ``spec``.

Does not: judge (``judge.py``) or word a report (``report.py``).
"""

from collections.abc import Callable
from typing import Any

from engine.errors import ExerciseError
from engine.fields import shown
from lab.exercises.catalogue import load, rule_of
from lab.exercises.checking import check_function, check_prediction
from lab.exercises.report import Report, hint_text


class Text(str):
    """A string that a cell shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the text itself."""
        return str(self)


def check(name: str, function: Callable[..., Any], *, rule: str | None = None) -> Report:
    """Check a function of this notebook. rule: the version that the notebook's task states. Raises: ExerciseError."""
    return check_function(name, function, rule=rule)


def predict(name: str, answer: object, *, rule: str | None = None) -> Text:
    """Say whether the answer to the exercise's question is right. Raises: ExerciseError."""
    return Text(check_prediction(name, answer, rule=rule))


def hint(name: str, level: int = 1) -> Text:
    """Return a hint; level 1 points, 2 explains, 3 nearly tells. Raises: ExerciseError."""
    if level not in (1, 2, 3):
        message = f"hints have the levels 1, 2 and 3, got {shown(level)}"
        raise ExerciseError(message)
    return Text(hint_text(load(name), level))


def spec(name: str, *, rule: str | None = None) -> Text:
    """Return the task, in Markdown. Raises: ExerciseError."""
    exercise = load(name)
    return Text(f"# {exercise.id} {exercise.meta.title}\n\n{exercise.spec(rule_of(exercise, rule))}")

"""Check one answer: a function of this process, or a source text in a child; the result is a report.

Does not: print, or find the answer in a file or a notebook.
"""

import ast
from collections.abc import Callable
from typing import Any, Final

from engine.errors import ExerciseError
from lab.exercises.callers import Caller, ChildCaller, LocalCaller
from lab.exercises.catalogue import load, rule_of
from lab.exercises.child import ENGINE, plain
from lab.exercises.exercise import Exercise
from lab.exercises.judge import Effort, judge
from lab.exercises.naming import PREDICTED, hashed, misconception
from lab.exercises.report import Report
from lab.exercises.shape import canonical, mismatch, shown

_FORBIDDEN: Final = ("engine", "lab")


def check_function(name: str, function: Callable[..., Any], *, rule: str | None = None) -> Report:
    """Check a function object with the visible checks. Raises: ExerciseError."""
    exercise = load(name)
    if not callable(function):
        message = f"check takes the function itself: check({exercise.id!r}, {exercise.meta.entry})"
        raise ExerciseError(message)
    caller = LocalCaller(exercise, function)
    return report_of(exercise, caller, rule=rule_of(exercise, rule), opener=function)


def check_source(name: str, source: str, *, rule: str | None = None) -> Report:
    """Check a source text with the visible checks, in a child process. Raises: ExerciseError."""
    exercise = load(name)
    chosen = rule_of(exercise, rule)
    with ChildCaller(exercise, source) as caller:
        return report_of(exercise, caller, rule=chosen, notes=import_notes(source))


def report_of(
    exercise: Exercise,
    caller: Caller,
    *,
    rule: str,
    notes: tuple[str, ...] = (),
    opener: Callable[..., Any] | None = None,
) -> Report:
    """Run the visible checks and, where one fails, look for the misconception."""
    results = tuple(judge(exercise, caller, rule=rule, effort=Effort()))
    is_right = all(result.passed for result in results)
    found = None if is_right else misconception(exercise, caller, rule=rule)
    return Report(exercise, rule, results, found, notes, opener)


def import_notes(source: str) -> tuple[str, ...]:
    """Return a sentence for every import of the engine or the lab; such an answer is refused when it runs."""
    return tuple(f"Refused: {ENGINE.format(name=name)}." for name in forbidden_imports(source))


def forbidden_imports(source: str) -> list[str]:
    """Return the modules of this project that a source imports. A source that is no Python imports none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return sorted({name for name in names if name.partition(".")[0] in _FORBIDDEN})


def check_prediction(name: str, answer: object, *, rule: str | None = None) -> str:
    """Say whether a prediction is right, and if not, which wrong idea leads to it. Raises: ExerciseError."""
    exercise = load(name)
    prediction = exercise.checks.prediction
    if prediction is None:
        message = f"{exercise.id} has nothing to predict; write {exercise.meta.entry} and check it"
        raise ExerciseError(message)
    if answer is ...:
        return f"{prediction.question} Put your answer in place of the dots."
    try:
        given = plain(answer)
    except (TypeError, ValueError) as error:
        return f"Your prediction {error}."
    problem = mismatch(given, exercise.checks.returns)
    if problem is not None:
        return f"Your prediction {problem}."
    stored: dict[str, Any] = exercise.visible["prediction"][rule_of(exercise, rule)]
    mark = hashed(exercise.visible["salt"], PREDICTED, canonical(given))
    if mark == stored["right"]:
        return f"{prediction.question} {shown(given)}: that is right."
    idea = stored["wrong"].get(mark)
    return f"{prediction.question} {shown(given)}: not yet." + (f" A function that answers so {idea}." if idea else "")

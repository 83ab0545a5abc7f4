"""Plug a learner's function into a live engine, through the exercise's adapter.

An adapter turns the function into one of the engine's ``Decisions``, and a case into a workload of the tiny model. The
walkthroughs and the stepper then run on the learner's own code. A wrong function does the harm that it would do.

Does not: import torch before an engine is wanted; whoever only checks never loads it.
"""

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from engine.decisions import Decisions
from engine.errors import ExerciseError
from lab.exercises.catalogue import load, rule_of
from lab.exercises.exercise import Case, Exercise

if TYPE_CHECKING:
    from lab.exercises.workload import Workload

_SESSION: Final = "lab.session"
_LLM: Final = "engine.llm"
_SHOW: Final = "lab.widgets.show"


def plug(name: str, function: Callable[..., Any], *, rule: str | None = None) -> Decisions:
    """Return the engine's decisions with the learner's function in place: ``LLM("tiny", decisions=plug(...))``.

    Raises: ExerciseError when the exercise has no adapter.
    """
    exercise = load(name)
    return _adapter(exercise).decisions(function, rule_of(exercise, rule))


def open_case(exercise: Exercise, function: Callable[..., Any] | None, case: Case | None, *, rule: str) -> object:
    """Run the case on a tiny engine that decides as the function does, and show its steps.

    What the engine or its guards make of a wrong decision is shown beside the steps before it. A function that has no
    place in the engine is not asked: the steps are then the engine's own. Raises: ExerciseError.
    """
    stage = _stage(exercise)
    if exercise.has_adapter and function is None:
        message = "a report of a file has no function to plug in; check the function in a notebook cell, then open()"
        raise ExerciseError(message)
    workload: Workload = stage.workload(case)
    llm_class: Any = engine_module().LLM
    session_class: Any = importlib.import_module(_SESSION).Session
    decisions = stage.decisions(function, rule) if exercise.has_adapter else Decisions()
    if not exercise.has_adapter:
        sys.stdout.write(
            f"{exercise.meta.entry} has no place of its own in the engine; these are the engine's steps.\n"
        )
    with llm_class("tiny", workload.config, decisions=decisions) as llm:
        session = session_class(llm, prompts=list(workload.prompts), params=workload.params)
        failure = _run(session)
        trace = session.trace
        session.close()
    if failure is not None:
        if not len(trace.steps):
            message = f"with this function the engine stopped before its first step was over: {failure}"
            raise ExerciseError(message)
        num_good = len(trace.steps)
        before = f"{num_good} good {'one' if num_good == 1 else 'ones'}"
        sys.stdout.write(f"With this function a step failed after {before}. {failure}\n")
    return importlib.import_module(_SHOW).show(trace)


def engine_module() -> Any:
    """Import the engine, which holds ``LLM``. Raises: ExerciseError where PyTorch is not installed."""
    try:
        return importlib.import_module(_LLM)
    except ModuleNotFoundError as error:
        message = (
            f"the stepper needs the engine, and {error.name} is not installed; `pip install ./stepscope` brings it"
        )
        raise ExerciseError(message) from error


def _run(session: Any) -> str | None:
    """Step to the end, or to the error that the decision led to, which is returned: raised, or told to the requests."""
    try:
        session.run()
    except Exception as error:
        return f"{type(error).__name__}: {error}".strip()
    errors = [str(output.error) for output in session.outputs if output.error]
    return errors[0] if errors else None


def _stage(exercise: Exercise) -> Any:
    """Return the exercise's adapter, or its scene. Raises: ExerciseError."""
    if exercise.has_adapter or not exercise.has_scene:
        return _adapter(exercise)
    return importlib.import_module(f"lab.exercises.{exercise.folder.name}.scene")


def _adapter(exercise: Exercise) -> Any:
    if not exercise.has_adapter:
        with_one = "only some functions decide something in the engine as it is"
        message = f"{exercise.id} cannot be plugged into the engine: {with_one}"
        raise ExerciseError(message)
    return importlib.import_module(f"lab.exercises.{exercise.folder.name}.adapter")

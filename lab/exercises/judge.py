"""Judge a function: worked examples, then properties, each with the smallest counterexample that was found.

Properties are searched by hypothesis with a fixed seed and no database, so that the same code gets the same verdict.
The number of calls is bounded, not the time: a busy machine changes nothing.

Does not: word a report (``report.py``), or name a misconception (``naming.py``).
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Final, cast

import hypothesis
from hypothesis import HealthCheck, Phase

from lab.exercises.callers import Caller, Outcome
from lab.exercises.exercise import Case, Example, Exercise, Property, Trial
from lab.exercises.shape import canonical, mismatch, same, shown

EXAMPLES: Final = "the worked examples"


@dataclasses.dataclass(frozen=True, slots=True)
class Effort:
    """How hard to look. num_cases: of each property. num_shrinks: calls spent on making a counterexample smaller."""

    num_cases: int = 60
    num_shrinks: int = 300
    seed: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Counterexample:
    """A case with a wrong answer. problem: what is wrong, in words."""

    case: Case
    outcome: Outcome
    problem: str


@dataclasses.dataclass(frozen=True, slots=True)
class CheckResult:
    """One check. kind: examples, visible or hidden."""

    name: str
    kind: str
    counterexample: Counterexample | None

    @property
    def passed(self) -> bool:
        """Whether nothing wrong was found."""
        return self.counterexample is None


class _WrongError(Exception):
    """Tells hypothesis that a case fails."""


class _EnoughError(BaseException):
    """Ends a search at once; no Exception, so that hypothesis does not take it for a failure."""


class _NoAnswerError(Exception):
    """The function gave no answer to a case that a check asked about."""

    def __init__(self, counterexample: Counterexample) -> None:
        super().__init__(counterexample.problem)
        self.counterexample = counterexample


def judge(
    exercise: Exercise, caller: Caller, *, rule: str, effort: Effort, hidden: bool = False
) -> Iterator[CheckResult]:
    """Yield the verdict of one check after the other. hidden: run the hidden properties too."""
    yield CheckResult(EXAMPLES, "examples", _examples(exercise, caller, rule))
    for one in exercise.checks.properties:
        if hidden or not one.is_hidden:
            found = search(exercise, one, caller, rule=rule, effort=effort)
            yield CheckResult(one.name, "hidden" if one.is_hidden else "visible", found)


def _examples(exercise: Exercise, caller: Caller, rule: str) -> Counterexample | None:
    for example in exercise.checks.examples_for(rule):
        found = _example(exercise, example, caller)
        if found is not None:
            return found
    return None


def _example(exercise: Exercise, example: Example, caller: Caller) -> Counterexample | None:
    outcome = caller(example.case)
    problem = no_answer(exercise, outcome)
    if problem is None and not same(outcome.value, example.answer):
        verb = "the answer is" if exercise.world is None else "it should be"
        problem = f"{verb} {shown(example.answer)}"
    return None if problem is None else Counterexample(example.case, outcome, problem)


def no_answer(exercise: Exercise, outcome: Outcome) -> str | None:
    """Return why an outcome is no answer at all (it raised, was slow, or has the wrong form), or None."""
    if outcome.kind != "value":
        return outcome.text
    return mismatch(outcome.value, exercise.checks.returns)


def examine(exercise: Exercise, one: Property, caller: Caller, *, rule: str, case: Case) -> Counterexample | None:
    """Ask about one case, and return the counterexample if the answer is wrong."""

    def ask(other: Case) -> Any:
        outcome = caller(other)
        problem = no_answer(exercise, outcome)
        if problem is not None:
            raise _NoAnswerError(Counterexample(other, outcome, problem))
        return outcome.value

    outcome = caller(case)
    problem = no_answer(exercise, outcome)
    if problem is None:
        try:
            problem = one.check(Trial(case, outcome.value, rule, ask))
        except _NoAnswerError as error:
            return error.counterexample
    return None if problem is None else Counterexample(case, outcome, problem)


def search(exercise: Exercise, one: Property, caller: Caller, *, rule: str, effort: Effort) -> Counterexample | None:
    """Look for a counterexample and make it small."""
    found: list[Counterexample] = []
    calls_left = effort.num_shrinks

    def attempt(case: Case) -> None:
        nonlocal calls_left
        if found:
            calls_left -= 1
            if calls_left < 0:
                raise _EnoughError
        wrong = examine(exercise, one, caller, rule=rule, case=case)
        if wrong is not None:
            found.append(wrong)
            if wrong.outcome.kind in ("slow", "dead"):
                raise _EnoughError
            raise _WrongError

    phases = (Phase.generate, Phase.shrink) if effort.num_shrinks else (Phase.generate,)
    settings = hypothesis.settings(
        max_examples=effort.num_cases,
        database=None,
        deadline=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=cast("list[HealthCheck]", list(HealthCheck)),
    )
    run = hypothesis.seed(effort.seed)(settings(hypothesis.given(one.cases)(attempt)))
    try:
        run()
    except (_WrongError, _EnoughError):
        return min(found, key=_size)
    return None


def _size(wrong: Counterexample) -> tuple[int, str]:
    text = canonical(wrong.case)
    return len(text), text

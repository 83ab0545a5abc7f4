"""A report in words: which checks hold, the smallest counterexample, the misconception, what is left and what is next.

Does not: run anything.
"""

import dataclasses
import html
from typing import Any, Final

from lab.exercises.catalogue import load, next_after
from lab.exercises.exercise import Case, Exercise
from lab.exercises.judge import CheckResult, Counterexample
from lab.exercises.naming import Misconception
from lab.exercises.shape import shown

_DONE: Final = "All visible checks pass."


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What checking one function found. notes: what else to say, for example that an import is not allowed."""

    exercise: Exercise
    rule: str
    results: tuple[CheckResult, ...]
    misconception: Misconception | None = None
    notes: tuple[str, ...] = ()
    opener: Any = None  # called with this report by ``open``; None where there is no function to plug in

    @property
    def passed(self) -> bool:
        """Whether every check that was run holds."""
        return all(result.passed for result in self.results)

    @property
    def points(self) -> int:
        """How many of the checks that were run hold; each is worth one point."""
        return sum(result.passed for result in self.results)

    @property
    def first_failure(self) -> Counterexample | None:
        """The counterexample of the first check that does not hold."""
        return next((one.counterexample for one in self.results if one.counterexample is not None), None)

    def open(self, case: Case | None = None) -> object:
        """Show the counterexample (or the case) in the stepper, on an engine that decides as this function does.

        Where the function has no place in the engine, the engine decides. Raises: ExerciseError where no step shows it.
        """
        from lab.exercises.plugging import open_case

        found = self.first_failure
        return open_case(self.exercise, self.opener, case or (found.case if found else None), rule=self.rule)

    def __str__(self) -> str:
        """Write it as a terminal shows it."""
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        body = html.escape(str(self))
        return f'<pre role="status" aria-label="check of {self.exercise.id}" style="white-space:pre-wrap">{body}</pre>'


def call_text(exercise: Exercise, case: Case) -> str:
    """Write a case as the call that it is; where a world stands between, as that world's case."""
    arguments = ", ".join(f"{name}={shown(value)}" for name, value in case.items())
    return (
        f"{exercise.meta.entry}({arguments})" if exercise.world is None else f"{exercise.meta.entry} with {arguments}"
    )


def lines(report: Report) -> list[str]:
    """Return the report's lines."""
    exercise = report.exercise
    out = [f"{exercise.id} {exercise.meta.title}"]
    detailed: set[bool] = set()  # of the worked examples, and of the properties: the first that fails is shown whole
    for result in report.results:
        out.append(f"  {'ok  ' if result.passed else 'FAIL'}  {result.name}")
        is_example = result.kind == "examples"
        if result.counterexample is not None and is_example not in detailed:
            out += [f"        {line}" for line in wrong_lines(exercise, result.counterexample)]
            detailed.add(is_example)
    if report.misconception is not None:
        out.append(f"Your function {report.misconception.text}.")
    out += list(report.notes)
    return out + _closing(report)


def wrong_lines(exercise: Exercise, wrong: Counterexample) -> list[str]:
    """Say a counterexample: the call, what came back, what is wrong with it, what was printed."""
    out = [call_text(exercise, wrong.case)]
    if wrong.outcome.kind == "value":
        verb = "returned" if exercise.world is None else "led to"
        out += [f"{verb} {shown(wrong.outcome.value)}", wrong.problem]
    else:
        out.append(wrong.outcome.text)
        if wrong.problem != wrong.outcome.text:
            out.append(wrong.problem)
    if wrong.outcome.printed:
        out.append(f"printed: {wrong.outcome.printed.strip()[:200]}")
    return out


def hidden_line(exercise: Exercise) -> str:
    """Say how many hidden properties there are, and what each is about."""
    names = exercise.meta.hidden
    verb = "property remains" if len(names) == 1 else "properties remain"
    return f"{len(names)} hidden {verb}, for grading: {', '.join(names)}."


def _closing(report: Report) -> list[str]:
    exercise = report.exercise
    out: list[str] = []
    if not report.passed:
        if report.first_failure is not None and exercise.has_adapter:
            out.append("See it happen in the stepper: the report's open(), in a notebook.")
        elif report.first_failure is not None and exercise.has_scene:
            out.append("See the engine's own steps on such a case: the report's open(), in a notebook.")
        out.append(
            f"A hint: stepscope check {exercise.id} --hint 1, or hint({exercise.id!r}) in a cell (three levels)."
        )
        return out
    if any(result.kind == "hidden" for result in report.results):
        return out
    out += [_DONE, hidden_line(exercise)]
    if exercise.has_adapter:
        out.append(f"Run the engine on your own code: plug({exercise.id!r}, {exercise.meta.entry}).")
    follower = next_after(exercise.id)
    out.append(
        f"Next: {follower} {load(follower).meta.title}." if follower else "That was the last exercise: all done."
    )
    return out


def hint_text(exercise: Exercise, level: int) -> str:
    """Return one of the three hints."""
    return f"{exercise.id}, hint {level} of 3: {exercise.meta.hints[level - 1]}"

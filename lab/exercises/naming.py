"""Name the misconception: which of the known wrong solutions a function behaves like.

For each known wrong solution the exercise stores, for those of its visible cases where that solution is wrong, a
salted hash of what it answers there. A function whose answers match nearly all of them behaves like it. The hashes
give nothing away: they are of wrong answers.

Does not: decide whether a function is right; a right one matches none.
"""

import dataclasses
import hashlib
from typing import Any, Final

from lab.exercises.callers import Caller
from lab.exercises.exercise import Exercise

MOST_LIKELY: Final = 0.9  # of a wrong solution's marks must match
PREDICTED: Final = -1  # stands for the case to be predicted where other marks have the index of their case
_LENGTH: Final = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Misconception:
    """A known wrong idea. text: what such a function does, to follow "your function"."""

    id: str
    text: str
    share: float


def hashed(salt: str, index: int, mark: str) -> str:
    """Return the stored form of one outcome on one visible case."""
    return hashlib.sha256(f"{salt}|{index}|{mark}".encode()).hexdigest()[:_LENGTH]


def outcome_marks(exercise: Exercise, caller: Caller) -> list[str]:
    """Return the mark of every visible case; a function that hangs is asked once."""
    marks: list[str] = []
    for case in exercise.visible["cases"]:
        outcome = caller(case)
        if outcome.kind in ("slow", "dead"):
            return []
        marks.append(outcome.mark)
    return marks


def misconception(exercise: Exercise, caller: Caller, *, rule: str) -> Misconception | None:
    """Return the wrong solution that the function behaves like, or None. Ties go to the one that is wrong more."""
    known: list[dict[str, Any]] = exercise.visible["misconceptions"].get(rule, [])
    marks = outcome_marks(exercise, caller) if known else []
    if not marks:
        return None
    salt: str = exercise.visible["salt"]
    best: tuple[float, int, Misconception] | None = None
    for one in known:
        wanted: dict[str, str] = one["marks"]
        hits = sum(hashed(salt, int(index), marks[int(index)]) == mark for index, mark in wanted.items())
        share = hits / len(wanted)
        if share >= MOST_LIKELY and (best is None or (share, len(wanted)) > best[:2]):
            best = share, len(wanted), Misconception(one["id"], one["text"], share)
    return None if best is None else best[2]

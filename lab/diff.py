"""Where two recorded runs part: their steps side by side, what differs in each, in the order of cause and effect.

A step is compared by what was scheduled, how it ran, which rows it had and what it gave. Requests are told apart by
the order in which they joined, not by number, and steps are counted from the first arrival, so that a second run of the
same engine compares with its first. Times, addresses, block and slot numbers are no difference: they move without a
cause in the run. A token that one side does not know (redacted, or still on the device) differs from nothing.

Does not: read traces (``Trace`` is above this file), mark rows in a stepper, or put a difference into words.
Source: the design's public ``compare(a, b)``, the first difference as a value.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from lab.snapshot import ROW_KINDS, UNKNOWN, StepSnapshot

Facts = tuple[Any, ...]
DUMMY: Final = "dummy"


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs. names: what to call each request, equal for requests that joined in the same place."""

    steps: Sequence[StepSnapshot]
    start: int
    names: Mapping[int, str]

    def name(self, request_id: int) -> str:
        """Return the name of a request; all dummies share one."""
        return DUMMY if request_id < 0 else self.names.get(request_id, f"#{request_id}")


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One step in which two runs differ, and the first thing in it that does.

    at: steps since the first arrival. aspect: one of ASPECTS, or "missing" when one run has no such step. left, right:
    what each run has there, as words. indices: of the step in each run, None where it is missing.
    """

    at: int
    aspect: str
    left: str
    right: str
    indices: tuple[int | None, int | None]


def differences(left: Side, right: Side) -> Iterator[Difference]:
    """Yield every step that differs, in order."""
    places = [{step.step - side.start: at for at, step in enumerate(side.steps)} for side in (left, right)]
    for at in sorted(places[0].keys() | places[1].keys()):
        indices = (places[0].get(at), places[1].get(at))
        found = _compare((left, right), indices)
        if found is not None:
            yield Difference(at, *found, indices)


def aligned(left: Side, right: Side, index: int) -> int | None:
    """Return the index of the right run's step beside the left run's ``index``; None when it has none."""
    wanted = left.steps[index].step - left.start + right.start
    guess = index + (left.steps[0].step - left.start) - (right.steps[0].step - right.start) if right.steps else -1
    if 0 <= guess < len(right.steps) and right.steps[guess].step == wanted:  # no gap before it, as nearly always
        return guess
    return next((at for at, step in enumerate(right.steps) if step.step == wanted), None)


def differing_rows(mine: Side, at: int, other: Side, beside: int) -> list[tuple[int, int | None]]:
    """Return (row, the other run's token) of each row that differs; None for a row that the other run does not have.

    Rows are matched by request and position, not by their place in the batch.
    """
    there = {(who, position): token for who, _, position, token in _rows(other, other.steps[beside])}
    found: list[tuple[int, int | None]] = []
    for row, (who, _, position, token) in enumerate(_rows(mine, mine.steps[at])):
        if who == DUMMY:
            continue
        if (who, position) not in there:
            found.append((row, None))
        elif not _same_token(token, there[who, position]):
            found.append((row, there[who, position]))
    return found


def _compare(sides: tuple[Side, Side], indices: tuple[int | None, int | None]) -> tuple[str, str, str] | None:
    if indices[0] is None or indices[1] is None:
        words = ["–" if at is None else str(side.steps[at].step) for side, at in zip(sides, indices, strict=True)]
        return ("missing", words[0], words[1])
    left, right = sides[0].steps[indices[0]], sides[1].steps[indices[1]]
    for aspect, read in _READERS.items():
        a, b = read(sides[0], left), read(sides[1], right)
        if aspect in _WITH_TOKENS:
            place = _first_unlike(a, b)
            if place is not None:
                return (aspect, _one(a, place), _one(b, place))
        elif a != b:
            mine, theirs = _only(a, b), _only(b, a)
            return (aspect, mine, theirs)
    return None


def _same_token(a: int, b: int) -> bool:
    return a == b or UNKNOWN in (a, b)


def _first_unlike(a: Facts, b: Facts) -> int | None:
    """Return the first place at which two rows of (..., token) differ, or one of the two has none."""
    for at, (mine, theirs) in enumerate(zip(a, b, strict=False)):
        if mine[:-1] != theirs[:-1] or not _same_token(mine[-1], theirs[-1]):
            return at
    return None if len(a) == len(b) else min(len(a), len(b))


def _one(facts: Facts, place: int) -> str:
    return " ".join(map(str, facts[place])) if place < len(facts) else "–"


def _only(facts: Facts, other: Facts) -> str:
    """Word what the other run does not have; everything, where the order alone differs."""
    mine = [fact for fact in facts if fact not in other] or ([*facts] if len(facts) == len(other) else [])
    return ", ".join(" ".join(map(str, fact)) if isinstance(fact, tuple) else str(fact) for fact in mine) or "–"


def _spans(side: Side, step: StepSnapshot) -> Facts:
    spans = step.schedule.spans
    return tuple((side.name(s.request_id), s.kind, f"{s.start}–{s.start + s.num_rows - 1}") for s in spans)


def _waits(side: Side, step: StepSnapshot) -> Facts:
    return tuple((side.name(d.request_id), d.reason) for d in step.schedule.deferrals)


def _cached(side: Side, step: StepSnapshot) -> Facts:
    return tuple((side.name(request_id), tokens) for request_id, tokens in step.reservation.credits if tokens)


def _rows(side: Side, step: StepSnapshot) -> Facts:
    rows = step.rows
    columns = (rows.request_ids.tolist(), rows.kinds.tolist(), rows.positions.tolist(), rows.token_ids.tolist())
    return tuple((side.name(rid), ROW_KINDS[kind], at, token) for rid, kind, at, token in zip(*columns, strict=True))


def _sampled(side: Side, step: StepSnapshot) -> Facts:
    return tuple((side.name(request_id), token) for request_id, token in step.outcome.tokens)


def _finished(side: Side, step: StepSnapshot) -> Facts:
    return tuple((side.name(request_id), reason) for request_id, reason in step.outcome.finished)


_WITH_TOKENS: Final = ("rows", "sampled")
_READERS: Final[Mapping[str, Callable[[Side, StepSnapshot], Facts]]] = {
    "spans": _spans,
    "paused": lambda side, step: tuple(side.name(one) for one in step.schedule.paused),
    "waits": _waits,
    "cached": _cached,
    "path": lambda _, step: (step.graph.path,),
    "reason": lambda _, step: (step.path.reason or "–",),
    "bucket": lambda _, step: (step.path.bucket if step.path.key is not None else "–",),
    "key": lambda _, step: (step.path.key or "–",),
    "steady": lambda _, step: (step.graph.steady or "steady",),
    "rows": _rows,
    "sampled": _sampled,
    "finished": _finished,
}
ASPECTS: Final = ("missing", *_READERS)

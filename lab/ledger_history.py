"""LedgerHistory: the KV ledger over the steps of a run: what stood at a step, and runs that are cut.

A snapshot holds changes only, so a run that is cut begins with a step whose own change is everything that stood.

Does not: hold a ledger (``ledger.py``). Torch-free.
"""

import copy
import dataclasses
from collections.abc import Iterable, Sequence

from lab.ledger import LedgerState, LedgerView, compose
from lab.snapshot import StepSnapshot


def ledger_after(steps: Iterable[StepSnapshot], *, at_reservation: bool = False) -> LedgerState:
    """Return what stands after the last of the steps, or in its middle, when it has got its blocks.

    steps: from the first that was recorded on.
    """
    state, last = LedgerState(), None
    for step in steps:
        state.apply(None if last is None else last.outcome.ledger)
        state.apply(step.reservation.ledger)
        last = step
    if last is not None and not at_reservation:
        state.apply(last.outcome.ledger)
    return state


def with_ledger_before(step: StepSnapshot, before: LedgerState) -> StepSnapshot:
    """Return the step with everything that stands at its reservation as its change; ``before`` is left alone."""
    state = copy.copy(before)
    state.owners, state.nodes, state.places = dict(before.owners), dict(before.nodes), dict(before.places)
    state.apply(step.reservation.ledger)
    reservation = dataclasses.replace(step.reservation, ledger=state.whole())
    return dataclasses.replace(step, reservation=reservation)


def picked(steps: Sequence[StepSnapshot], indices: Iterable[int]) -> list[StepSnapshot]:
    """Return some of the steps; what changed in those left out is part of the next one's change. Order: ascending."""
    found: list[StepSnapshot] = []
    at = 0
    for index in indices:
        missed: LedgerView | None = None
        for skipped in steps[at:index]:
            missed = compose(compose(missed, skipped.reservation.ledger), skipped.outcome.ledger)
        step, at = steps[index], index + 1
        if missed is not None:
            reservation = dataclasses.replace(step.reservation, ledger=compose(missed, step.reservation.ledger))
            step = dataclasses.replace(step, reservation=reservation)
        found.append(step)
    return found

"""Examine a fault: the healthy run, the broken run with the guards on and off, and what came of it.

What is reported is what happened in these runs. The healthy run goes under the same guards as the broken one: if it
is refused, nothing is detected, whatever the broken one does.

Does not: start processes (``children.py``) or word anything for the terminal (``lab/cli/faults.py``).
"""

import dataclasses
from typing import Any, Final

from engine.device import resolve_device
from lab.faults.catalogue import find_fault
from lab.faults.fault import Fault
from lab.faults.runs import Run, first_difference, marks, run_workload
from lab.trace import RowMark, Trace

GUARDS: Final = ("on", "off")
BACKENDS: Final = {True: "tape (simulated)", False: "cuda"}


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What the broken run did, under one setting of the guards.

    raised, message and raised_step: the error that ended it (step -1: warm-up). wrong_step and wrong_row: the first
    row whose token differs from the healthy run's. lost_step: the first step that ran eagerly instead of on its graph.
    num_wrong: wrong rows in all. texts: (right, got) of each request. error: why nothing can be said, else None.
    """

    guards: str
    raised: str | None = None
    message: str | None = None
    raised_step: int | None = None
    wrong_step: int | None = None
    wrong_row: int | None = None
    lost_step: int | None = None
    num_wrong: int = 0
    wrong_text: str | None = None
    texts: tuple[tuple[str, str], ...] = ()
    error: str | None = None

    @property
    def detected(self) -> bool:
        """Whether the broken run can be told from the healthy one."""
        seen = (self.raised, self.wrong_step, self.lost_step)
        return self.error is None and any(fact is not None for fact in seen)

    @property
    def raised_by(self) -> str | None:
        """Who refused or failed: a guard of the engine (or the engine itself), or the audit; None when nothing did."""
        return None if self.raised is None else "audit" if self.raised == "AuditError" else "engine"

    @property
    def first_step(self) -> int | None:
        """The step at which the fault showed."""
        steps = (self.wrong_step, self.lost_step, self.raised_step)
        return next((step for step in steps if step is not None), None)

    @property
    def verdict(self) -> str:
        """Say it as a table of scenarios does: ok, refused(error), raised(error), wrong(first row) or off-graph."""
        if self.error is not None:
            return "unknown"
        if self.raised is not None:
            is_refusal = self.raised.endswith(("RefusedError", "AuditError", "CapacityError"))
            return f"{'refused' if is_refusal else 'raised'}({self.raised})"
        if self.wrong_step is not None:
            return f"wrong({self.wrong_row})"
        return "ok" if self.lost_step is None else "off-graph"


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What is known of a fault after its runs, one outcome for each setting of the guards that was asked for."""

    fault: Fault
    backend: str
    outcomes: tuple[Outcome, ...]

    @property
    def detected(self) -> bool:
        """Whether every run detected it."""
        return bool(self.outcomes) and all(outcome.detected for outcome in self.outcomes)

    def as_json(self) -> dict[str, Any]:
        """Return the entry of ``stepscope faults run --json``.

        raised: with the guards on. first_step and first_row: with the guards off, if that was asked for.
        """
        by_guards = {outcome.guards: outcome for outcome in self.outcomes}
        raised = by_guards["on"].raised if "on" in by_guards else by_guards["off"].raised
        harm = by_guards.get("off") or by_guards["on"]
        return {
            "name": self.fault.name,
            "backend": self.backend,
            "detected": self.detected,
            "raised": raised,
            "first_step": harm.first_step,
            "first_row": harm.wrong_row,
            "explanation": self.fault.explanation,
            "rule": self.fault.rule,
            "source": self.fault.source,
            **{
                f"guards_{o.guards}": {"verdict": o.verdict, "raised_by": o.raised_by, **_without_texts(o)}
                for o in self.outcomes
            },
        }


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class FaultRun:
    """The traces of a fault for the stepper; broken carries a mark on every wrong row (None: it never got warm)."""

    report: Report
    healthy: Trace
    broken: Trace | None

    def __repr__(self) -> str:
        """Say in one line what came of it."""
        outcome = self.report.outcomes[0]
        return f"<fault {self.report.fault.name}, guards {outcome.guards}: {outcome.verdict}, {self.broken!r}>"


def examine(fault: Fault, device: str, guards: str) -> Outcome:
    """Run a fault's workload healthy and broken, here, and compare. guards: one of GUARDS. device: cpu or cuda."""
    return compare(*_both_runs(fault, device, guards), guards)


def run(name: str, *, device: str = "cpu", guards: str = "off") -> FaultRun:
    """Run a fault in this process and return both traces, to be shown side by side."""
    fault = find_fault(name)
    healthy, broken = _both_runs(fault, device_kind(device), guards)
    report = Report(fault, BACKENDS[healthy.simulated], (compare(healthy, broken, guards),))
    assert healthy.trace is not None, healthy.raised
    trace = broken.trace
    if trace is not None:
        trace = dataclasses.replace(trace, marks=marks(healthy, broken))
    return FaultRun(report, healthy.trace, trace)


def device_kind(device: str) -> str:
    """Return cpu or cuda for a device as the user gave it. Raises: ConfigError."""
    return "cuda" if resolve_device(device, "float32").is_cuda else "cpu"


def _both_runs(fault: Fault, device: str, guards: str) -> tuple[Run, Run]:
    guarded = guards == "on"
    healthy = run_workload(fault.workload, device, guarded=guarded)
    return healthy, run_workload(fault.workload, device, fault=fault, guarded=guarded)


def compare(healthy: Run, broken: Run, guards: str) -> Outcome:
    """Say what the broken run did that the healthy one did not, both under the same guards."""
    if healthy.raised is not None:
        error = f"the healthy run failed: {healthy.raised.kind}: {healthy.raised.message}"
        return Outcome(guards, error=error)
    difference, found, raised = first_difference(healthy, broken), marks(healthy, broken), broken.raised
    return Outcome(
        guards,
        raised=raised.kind if raised else None,
        message=raised.message if raised else None,
        raised_step=raised.step if raised else None,
        wrong_step=difference.step,
        wrong_row=difference.row,
        lost_step=difference.lost,
        num_wrong=len(found),
        wrong_text=_text_at(found, difference.step, difference.row),
        texts=_texts(healthy.trace, broken.trace),
    )


def _text_at(found: tuple[RowMark, ...], step: int | None, row: int | None) -> str | None:
    return next((mark.text for mark in found if (mark.step, mark.row) == (step, row)), None)


def _texts(healthy: Trace | None, broken: Trace | None) -> tuple[tuple[str, str], ...]:
    right, got = (trace.texts(-1) if trace is not None and len(trace) else {} for trace in (healthy, broken))
    return tuple((text, got.get(request_id, "")) for request_id, text in right.items())


def _without_texts(outcome: Outcome) -> dict[str, Any]:
    facts = dataclasses.asdict(outcome)
    del facts["texts"], facts["guards"]
    return facts

"""Counts over the steps of a whole trace: paths, reasons, padding, and the share that ran on graphs.

Does not: know a trace's header or its file (``trace.py``), or word a reason.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final

import numpy as np

from engine.reasons import PathKind
from lab.outline import is_outline
from lab.reasons import GRAPH_PATHS
from lab.snapshot import STAGES, StepSnapshot

IDLE: Final = "idle"
GRAPHS: Final = frozenset({*GRAPH_PATHS, PathKind.CAPTURE.value})  # paths on which a tape simulates something
_LEAST: Final = 1e-4  # of a share that is written with a number


@dataclasses.dataclass(frozen=True, slots=True)
class TraceSummary:
    """Counts over a whole trace.

    paths: steps by eager, capture, replay, idle. reasons: eager steps by reason. deferrals: by reason. padding_share:
    rows spent on dummies and on the tails of prefill buckets, out of all rows. host_us: median us of each stage.
    simulated: graphs are the CPU tape. num_outlines: steps that were imported, whose requests and tokens nobody knows.
    """

    num_steps: int
    num_requests: int
    num_tokens: int
    paths: Mapping[str, int]
    reasons: Mapping[str, int]
    deferrals: Mapping[str, int]
    padding_share: float
    host_us: Mapping[str, float]
    simulated: bool
    num_outlines: int = 0

    def __str__(self) -> str:
        """Say it in a few lines."""
        paths = ", ".join(f"{count} {path}" for path, count in self.paths.items()) or "none"
        work = f"{counted(self.num_requests, 'request')}, {counted(self.num_tokens, 'token')} sampled"
        if self.num_outlines and not self.num_requests:
            work = "imported: requests and tokens are not in the file"
        lines = [
            f"{counted(self.num_steps, 'step')} ({paths}), {work}",
            f"padding: {percent(self.padding_share)} of all rows",
            *self._graphs(),
        ]
        for title, counts in (("off the graph path", self.reasons), ("held back", self.deferrals)):
            lines += [f"{title}: {reason} x {count}" for reason, count in counts.items()]
        return "\n".join(lines)

    def _graphs(self) -> list[str]:
        """Say what the graphs were, where the steps tell: a tape that no step used simulated nothing."""
        if self.paths.keys() & GRAPHS:
            return ["graphs: simulated by the CPU tape"] * self.simulated
        if "GRAPHS_DISABLED" in self.reasons:
            return ["graphs: off"]
        return ["graphs: used by no step"] * (self.simulated and bool(self.paths))


def counted(count: int, noun: str) -> str:
    """Write so many of a thing: one takes the singular."""
    return f"{count} {noun}{'s' * (count != 1)}"


def percent(share: float) -> str:
    """Write a share in percent: one digit, two near both ends; only nothing is 0 and only all is 100."""
    if 0 < share < _LEAST:
        return f"< {100 * _LEAST:g} %"
    if 1 - _LEAST < share < 1:
        return f"> {100 - 100 * _LEAST:g} %"
    is_near_an_end = 0 < share < 0.01 or 0.99 < share < 1
    return f"{100 * share:.{2 if is_near_an_end else 1}f} %"


def percents(left: float, right: float) -> tuple[str, str]:
    """Write two shares in percent, with as many digits as it takes to tell unequal ones apart."""
    texts = (percent(left + 0.0), percent(right + 0.0))  # of -0.0 as of 0.0
    exact = [100 * Decimal(share) for share in (left, right)]
    digits = 2
    while texts[0] == texts[1] and left != right:
        texts = (f"{exact[0]:.{digits}f} %", f"{exact[1]:.{digits}f} %")
        digits += 1
    return texts


def path_word(step: StepSnapshot) -> str:
    """Return how a step ran: eager, capture, replay, prefill_replay; idle when it had nothing to run."""
    return step.graph.path if step.schedule.spans else IDLE


def graph_share(steps: Iterable[StepSnapshot]) -> float | None:
    """Return the share of the steps with a forward that ran on graphs; None when no step had a forward."""
    paths = [step.graph.path for step in steps if step.schedule.spans]
    return sum(path in GRAPH_PATHS for path in paths) / len(paths) if paths else None


def count_names(names: Sequence[str]) -> dict[str, int]:
    """Return how often each name comes, most frequent first."""
    return {name: names.count(name) for name in sorted(set(names), key=lambda name: (-names.count(name), name))}


def summarize(all_steps: Iterable[StepSnapshot], *, num_requests: int, simulated: bool) -> TraceSummary:
    """Count paths, reasons, deferrals, padding and host time over all steps."""
    steps = list(all_steps)
    rows = sum(step.num_rows for step in steps)
    padding = sum(step.num_padding_rows for step in steps)
    times = np.array([step.host_us for step in steps], np.float32).reshape(-1, len(STAGES))
    seen = {stage: times[:, at][~np.isnan(times[:, at])] for at, stage in enumerate(STAGES)}
    return TraceSummary(
        num_steps=len(steps),
        num_requests=num_requests,
        num_tokens=sum(len(step.outcome.tokens) for step in steps),
        paths=count_names([path_word(step) for step in steps]),
        reasons=count_names([step.path.reason for step in steps if step.path.reason is not None]),
        deferrals=count_names([deferral.reason for step in steps for deferral in step.schedule.deferrals]),
        padding_share=padding / rows if rows else 0.0,
        host_us={stage: round(float(np.median(us)), 1) for stage, us in seen.items() if len(us)},
        simulated=simulated,
        num_outlines=sum(is_outline(step) for step in steps),
    )

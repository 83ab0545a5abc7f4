"""What every fault does, as one table for both machines, and how a test runs one.

Verdicts are those of ``lab.faults.examine.Outcome.verdict``. Both tiers read it: ``test_*`` here on the tape,
``tests/gpu/test_graph_scenarios.py`` on CUDA.
"""

import dataclasses
import functools

from lab.faults.catalogue import FAULTS
from lab.faults.examine import Outcome, compare
from lab.faults.fault import Workload
from lab.faults.runs import Run, run_workload

AUDIT, REPLAY = "refused(AuditError)", "refused(ReplayRefusedError)"
CAPTURE, CAPACITY = "refused(CaptureRefusedError)", "refused(CapacityError)"


@dataclasses.dataclass(frozen=True)
class Row:
    """The verdicts with the guards on and off; step: at which the harm first shows without guards, on the tape.

    cuda_off: the verdict of CUDA where it differs, and why. A step may differ there: kernels of one launch race.
    """

    on: str
    off: str
    step: int
    cuda_off: str | None = None
    difference: str = ""

    def verdict(self, guards: str, device: str) -> str:
        """Return what is expected."""
        if guards == "on":
            return self.on
        return self.cuda_off if device == "cuda" and self.cuda_off is not None else self.off


VERDICTS: dict[str, Row] = {
    "short-input-stale-tail": Row(REPLAY, "wrong(3)", 1),
    "padding-rows-not-zeroed": Row(AUDIT, "wrong(3)", 1),
    "rebound-buffer": Row(REPLAY, "wrong(0)", 1),
    "equal-but-other-metadata": Row(REPLAY, "wrong(0)", 1),
    "broadcast-positions": Row(REPLAY, "wrong(1)", 1),
    "pinned-source-rewritten": Row(AUDIT, "wrong(10)", 0),
    "missing-key-field": Row(AUDIT, "wrong(0)", 1),
    "stale-greedy-flag": Row(AUDIT, "wrong(3)", 4),
    "dummy-by-incidental-state": Row(AUDIT, "wrong(1)", 4),
    "dummy-aliases-live-block": Row(AUDIT, "wrong(0)", 1),
    "lazy-dummy-in-a-full-pool": Row(AUDIT, "off-graph", 1),
    "partial-dummy-leaked": Row(AUDIT, "raised(NoFreeSlotsError)", 3),
    "workspace-grows-after-capture": Row(AUDIT, "wrong(0)", 1),
    "output-read-after-another-replay": Row(AUDIT, "wrong(0)", 1),
    "forgotten-replay": Row(AUDIT, "wrong(0)", 1),
    "capture-while-serving": Row(CAPTURE, "wrong(0)", 1),
    "host-read-inside-capture": Row(
        CAPTURE, "wrong(0)", 1, CAPTURE, "CUDA's own refusal cannot be lifted; the tape's is a check of ours"
    ),
    "slot-minus-one-as-index": Row(AUDIT, "wrong(2)", 6),
    "block-table-wider-than-captured": Row(CAPACITY, "wrong(1)", 2),
    "stale-block-table-column": Row(AUDIT, "wrong(1)", 3),
    "nan-in-unused-block": Row(AUDIT, "wrong(10)", 0),
    "cached-list-aliased": Row(AUDIT, "wrong(0)", 2),
    "steady-record-not-dropped": Row(AUDIT, "wrong(0)", 7),
    "promotion-by-stale-index": Row(AUDIT, "wrong(0)", 5),
}


@functools.cache
def healthy_run(workload: Workload, guarded: bool) -> Run:
    """Run a workload without a fault, once for all tests."""
    return run_workload(workload, "cpu", guarded=guarded)


def outcome_here(name: str, guards: str) -> Outcome:
    """Run a fault in this process, on the tape."""
    fault, guarded = FAULTS[name], guards == "on"
    broken = run_workload(fault.workload, "cpu", fault=fault, guarded=guarded)
    return compare(healthy_run(fault.workload, guarded), broken, guards)


def check_fault(name: str, message: str) -> None:
    """Run a fault with the guards on and off: both give the table's verdict, and the refusal says ``message``."""
    on, off = outcome_here(name, "on"), outcome_here(name, "off")
    row = VERDICTS[name]
    assert (on.verdict, off.verdict, off.first_step) == (row.on, row.off, row.step)
    assert on.detected
    assert off.detected
    assert message in (on.message or "")

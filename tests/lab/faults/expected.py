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
    """The verdicts with the guards on and off. cuda_off: that of CUDA where it differs, and why."""

    on: str
    off: str
    cuda_off: str | None = None
    difference: str = ""

    def verdict(self, guards: str, device: str) -> str:
        """Return what is expected."""
        if guards == "on":
            return self.on
        return self.cuda_off if device == "cuda" and self.cuda_off is not None else self.off


VERDICTS: dict[str, Row] = {
    "short-input-stale-tail": Row(REPLAY, "wrong(step 1, row 3)"),
    "padding-rows-not-zeroed": Row(AUDIT, "wrong(step 1, row 3)"),
    "rebound-buffer": Row(REPLAY, "wrong(step 1, row 0)"),
    "equal-but-other-metadata": Row(REPLAY, "wrong(step 1, row 0)"),
    "broadcast-positions": Row(REPLAY, "wrong(step 1, row 1)"),
    "pinned-source-rewritten": Row(AUDIT, "wrong(step 0, row 10)"),
    "missing-key-field": Row(AUDIT, "wrong(step 1, row 0)"),
    "stale-greedy-flag": Row(AUDIT, "wrong(step 4, row 3)"),
    "dummy-by-incidental-state": Row(AUDIT, "wrong(step 4, row 1)"),
    "dummy-aliases-live-block": Row(AUDIT, "wrong(step 1, row 0)"),
    "lazy-dummy-in-a-full-pool": Row(AUDIT, "off-graph(step 1)"),
    "partial-dummy-leaked": Row(AUDIT, "raised(NoFreeSlotsError)"),
    "workspace-grows-after-capture": Row(AUDIT, "wrong(step 1, row 0)"),
    "output-read-after-another-replay": Row(AUDIT, "wrong(step 1, row 0)"),
    "forgotten-replay": Row(AUDIT, "wrong(step 1, row 0)"),
    "capture-while-serving": Row(CAPTURE, "wrong(step 1, row 0)"),
    "host-read-inside-capture": Row(
        CAPTURE, "wrong(step 1, row 0)", CAPTURE, "CUDA's own refusal cannot be lifted; the tape's is a check of ours"
    ),
    "slot-minus-one-as-index": Row(AUDIT, "wrong(step 6, row 2)"),
    "block-table-wider-than-captured": Row(CAPACITY, "wrong(step 6, row 0)"),
    "stale-block-table-column": Row(AUDIT, "wrong(step 2, row 1)"),
    "nan-in-unused-block": Row(AUDIT, "wrong(step 0, row 10)"),
    "cached-list-aliased": Row(AUDIT, "wrong(step 2, row 0)"),
    "steady-record-not-dropped": Row(AUDIT, "wrong(step 7, row 0)"),
    "promotion-by-stale-index": Row(AUDIT, "wrong(step 5, row 0)"),
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
    assert (on.verdict, off.verdict) == (VERDICTS[name].on, VERDICTS[name].off)
    assert on.detected
    assert off.detected
    assert message in (on.message or "")

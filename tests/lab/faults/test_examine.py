import dataclasses
import json

import pytest

from lab.faults.examine import BACKENDS, Outcome, Report, compare, device_kind, examine, run
from lab.faults.fault import THREE, Fault, Workload, small_config
from lab.faults.runs import Raised
from tests.lab.faults.expected import healthy_run

HARMLESS = Fault("harmless", "Nothing is wrong.", "None.", "nobody", Workload(THREE, small_config()))


@pytest.mark.parametrize("guards", ["on", "off"])
def test_a_fault_without_effect_is_not_detected(guards):
    outcome = examine(HARMLESS, "cpu", guards)
    assert (outcome.verdict, outcome.detected, outcome.first_step) == ("ok", False, None)
    assert not Report(HARMLESS, BACKENDS[True], (outcome,)).detected


def test_nothing_is_detected_beside_a_healthy_run_that_fails():
    healthy = healthy_run(HARMLESS.workload, False)
    failed = dataclasses.replace(healthy, raised=Raised("AuditError", "row 0 must be 1", 2))
    outcome = compare(failed, failed, "on")
    assert (outcome.verdict, outcome.detected) == ("unknown", False)
    assert outcome.error == "the healthy run failed: AuditError: row 0 must be 1"


def test_an_entry_has_the_promised_keys_and_both_settings():
    outcomes = (
        Outcome("on", raised="ReplayRefusedError", message="no", raised_step=1),
        Outcome("off", wrong_step=2, wrong_row=3, num_wrong=4),
    )
    entry = json.loads(json.dumps(Report(HARMLESS, "cuda", outcomes).as_json()))
    assert list(entry)[:9] == [
        *("name", "backend", "detected", "raised", "first_step", "first_row", "explanation", "rule", "source"),
    ]  # fmt: skip
    assert (entry["detected"], entry["raised"]) == (True, "ReplayRefusedError")
    assert (entry["first_step"], entry["first_row"]) == (2, 3)
    assert entry["guards_on"]["verdict"] == "refused(ReplayRefusedError)"
    assert (entry["guards_on"]["raised_by"], entry["guards_off"]["raised_by"]) == ("engine", None)
    assert entry["guards_off"]["verdict"] == "wrong(3)"


def test_verdicts_tell_refusals_from_crashes_and_lost_graphs():
    assert Outcome("off", raised="NoFreeSlotsError", raised_step=3).verdict == "raised(NoFreeSlotsError)"
    assert Outcome("off", raised="CapacityError", raised_step=3).verdict == "refused(CapacityError)"
    assert Outcome("off", lost_step=1).verdict == "off-graph"
    assert Outcome("off", error="no answer").verdict == "unknown"


def test_a_notebook_gets_both_traces_with_the_wrong_rows_marked():
    found = run("short-input-stale-tail")
    assert found.report.detected
    assert found.report.backend == "tape (simulated)"
    assert found.healthy.marks == ()
    assert found.broken is not None
    assert (found.broken.marks[0].step, found.broken.marks[0].row) == (1, 3)
    assert len(found.broken) == len(found.healthy)
    assert repr(found).startswith("<fault short-input-stale-tail, guards off: wrong(3), <Trace of tiny: 10 steps")


def test_a_fault_that_never_gets_warm_has_no_broken_trace():
    assert run("host-read-inside-capture", guards="on").broken is None


def test_a_device_is_taken_as_the_engine_takes_it():
    assert device_kind("cpu") == "cpu"

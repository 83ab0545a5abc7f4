import pytest

from engine.attention import native
from lab.faults.fault import FOUR, Workload, small_config, swapped
from lab.faults.runs import Difference, first_difference, run_workload
from lab.faults.steady import STEADY_FAULTS, TrimmingMetadata
from tests.lab.faults.expected import check_fault, healthy_run

MESSAGES = {
    "cached-list-aliased": "kv_lens[0] (request 0) must be 13, and holds 6",
    "steady-record-not-dropped": "kv_lens[0] (request 0) must be 18, and holds 15",
    "promotion-by-stale-index": "row 0 of input_ids (request 2) must be 114, and holds",
}


@pytest.mark.parametrize("name", [fault.name for fault in STEADY_FAULTS])
def test_a_fault_of_derived_steps_is_refused_with_the_guards_and_harms_without(name):
    check_fault(name, MESSAGES[name])


class Careful(TrimmingMetadata):
    takes_snapshot = True


@pytest.mark.parametrize("guarded", [True, False])
def test_a_trimming_backend_does_no_harm_when_the_record_is_a_copy(guarded):
    workload = Workload(FOUR, small_config())
    with swapped(native, "NativeMetadata", Careful):
        trimmed = run_workload(workload, "cpu", guarded=guarded)
    assert trimmed.raised is None
    assert first_difference(healthy_run(workload, guarded), trimmed) == Difference()


def derived(trace):
    return [step.step for step in trace.steps if step.buffer("position_ids").writes[0].writer == "in_place_add"]


def test_the_workloads_take_the_paths_that_they_are_about():
    aliased, kept, promoted = (healthy_run(fault.workload, False).trace for fault in STEADY_FAULTS)
    assert derived(aliased) == list(range(2, 10))
    assert derived(kept) == [2, 3, 8, 9]  # 4 to 6 have a third request, 7 must begin anew
    assert [step.step for step in promoted.steps if step.schedule.promoted] == [5]

import pytest

from lab.faults.capturing import CAPTURE_FAULTS
from tests.lab.faults.expected import check_fault

MESSAGES = {
    "workspace-grows-after-capture": "bring memory that a graph reads to its final size before warm-up",
    "output-read-after-another-replay": "the token that the host read for request 0 must be",
    "forgotten-replay": "nothing sampled for request 0 in this step: its graph was not replayed",
    "capture-while-serving": "graph (batch 4, draft 0, greedy) would be captured while serving",
    "host-read-inside-capture": "cannot be captured: the host would read a value that exists only at replay",
}


@pytest.mark.parametrize("name", [fault.name for fault in CAPTURE_FAULTS])
def test_a_fault_of_capture_is_refused_with_the_guards_and_harms_without(name):
    check_fault(name, MESSAGES[name])

import pytest

from lab.faults.keys import KEY_FAULTS
from tests.lab.faults.expected import check_fault

MESSAGES = {
    "missing-key-field": "the batch needs the full sampler, and the key (batch 4, draft 0, greedy) replays the other",
    "stale-greedy-flag": "the batch needs the full sampler, and the key (batch 4, draft 0, greedy) replays the other",
    "dummy-by-incidental-state": "row 0 of input_ids (request 0) must be 46, and holds 0",
    "dummy-aliases-live-block": "is in the tables of request 0 and of padding",
    "lazy-dummy-in-a-full-pool": "3 requests fit the graph of 4, and no padding dummy exists; reserve it at the end of",
    "partial-dummy-leaked": "which is no live request and no padding dummy",
}


@pytest.mark.parametrize("name", [fault.name for fault in KEY_FAULTS])
def test_a_fault_of_key_or_dummy_is_refused_with_the_guards_and_harms_without(name):
    check_fault(name, MESSAGES[name])

import pytest

from lab.faults.buffers import BUFFER_FAULTS
from tests.lab.faults.expected import check_fault

MESSAGES = {
    "short-input-stale-tail": "graph (batch 4, draft 0, greedy) would replay wrongly: rows: captured (4,), got",
    "padding-rows-not-zeroed": "row 3 of input_ids (padding) must be 0, and holds",
    "rebound-buffer": "address of metadata.kv_lens: captured 0x",
    "equal-but-other-metadata": "captured the metadata object of (batch 4, draft 0, greedy), got another",
    "broadcast-positions": "position shape: captured (1, 1, 4), got (1, 1, 1)",
    "pinned-source-rewritten": "row 0 of input_ids (request 0) must be 72, and holds",
}


@pytest.mark.parametrize("name", [fault.name for fault in BUFFER_FAULTS])
def test_a_fault_of_the_buffers_is_refused_with_the_guards_and_harms_without(name):
    check_fault(name, MESSAGES[name])

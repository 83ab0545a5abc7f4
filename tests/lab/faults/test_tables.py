import pytest

from lab.faults.tables import TABLE_FAULTS
from tests.lab.faults.expected import check_fault

MESSAGES = {
    "slot-minus-one-as-index": "the step wrote KV token 3 of block 14, where none of its rows belongs",
    "block-table-wider-than-captured": "was allocated for 4 blocks in one sequence, the step has 5",
    "stale-block-table-column": "block_table[0] (request 0) must be [20, 21, 22, 23, 0,",
    "nan-in-unused-block": "a logit is not finite",
}


@pytest.mark.parametrize("name", [fault.name for fault in TABLE_FAULTS])
def test_a_fault_of_the_tables_is_refused_with_the_guards_and_harms_without(name):
    check_fault(name, MESSAGES[name])

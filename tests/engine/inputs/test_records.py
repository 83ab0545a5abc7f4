"""A replay check passes only when every line passes."""

from engine.inputs.records import CheckedItem, ReplayCheck


def test_one_failing_line_fails_the_check():
    good = CheckedItem("rows", "4", "4", passed=True)
    bad = CheckedItem("address of kv_lens", "0x10", "0x20", passed=False)
    assert ReplayCheck((good, good)).passed
    assert not ReplayCheck((good, bad)).passed

import dataclasses

import pytest

from engine.kv_cache.copies import BlockCopy, CopyKind


def test_a_copy_is_a_value_that_nobody_changes():
    copy = BlockCopy(CopyKind.ONBOARD, 3, 5, 16)
    assert copy == BlockCopy(CopyKind.ONBOARD, source=3, target=5, num_tokens=16)
    with pytest.raises(dataclasses.FrozenInstanceError):
        copy.source = 4


def test_the_kinds_say_between_which_pools():
    assert [kind.value for kind in CopyKind] == ["DEVICE", "OFFLOAD", "ONBOARD"]

"""Newest tokens in, positions on by one."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.ops.advance_rows import advance_rows_


@given(st.lists(st.integers(0, 6), max_size=12), st.integers(0, 100))
def test_every_row_takes_its_slots_sample_and_moves_on(slots, start):
    samples = torch.arange(7, dtype=torch.int32) * 10
    ids = torch.full((len(slots),), -1, dtype=torch.int32)
    positions = torch.arange(start, start + len(slots), dtype=torch.int32).view(1, 1, -1)
    addresses = ids.data_ptr(), positions.data_ptr()
    advance_rows_(ids, positions, samples, torch.tensor(slots, dtype=torch.int64))
    assert ids.tolist() == [10 * slot for slot in slots]
    assert positions.flatten().tolist() == list(range(start + 1, start + 1 + len(slots)))
    assert addresses == (ids.data_ptr(), positions.data_ptr())

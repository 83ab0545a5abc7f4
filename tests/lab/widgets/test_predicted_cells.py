"""Cells to predict: their names, what they held, and that the browser knows the same lists."""

import json
import re

import numpy as np
import pytest

from lab.snapshot import UNKNOWN
from lab.widgets.predicted_cells import LISTS, NO_CELL, TABLE, parse_cell, value_of
from lab.widgets.stepper import read_part
from tests.lab.sample_steps import decode_step


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("input_ids[3]", ("input_ids", 3, None)),
        ("kv_lens[0]", ("kv_lens", 0, None)),
        ("block_table[1][2]", ("block_table", 1, 2)),
    ],
)
def test_a_cell_has_a_list_and_a_place(name, cell):
    assert parse_cell(name) == cell


@pytest.mark.parametrize(
    "name", ["", "cell", "input_ids", "input_ids[-1]", "input_ids[1][2]", "block_table[1]", "logits[0]", "kv_lens[1] "]
)
def test_anything_else_is_no_cell(name):
    assert parse_cell(name) is None


def test_a_cell_holds_what_the_step_wrote_there(full_trace):
    for step in full_trace.steps:
        metadata, rows = step.metadata, step.rows
        for row in range(rows.num_rows):
            assert value_of(step, f"position_ids[{row}]") == str(rows.positions[row])
            token = int(rows.token_ids[row])
            assert value_of(step, f"input_ids[{row}]") == (None if token == UNKNOWN else str(token))
        for at in range(len(metadata.request_ids)):
            assert value_of(step, f"seq_lens[{at}]") == str(metadata.seq_lens[at])
            assert value_of(step, f"kv_lens[{at}]") == str(metadata.seq_lens[at] + metadata.cached_lens[at])
            assert value_of(step, f"seq_slots[{at}]") == str(metadata.seq_slots[at])
            table = metadata.block_tables[at]
            assert [value_of(step, f"{TABLE}[{at}][{i}]") for i in range(len(table))] == [str(one) for one in table]
            assert value_of(step, f"{TABLE}[{at}][{len(table)}]") == NO_CELL
        assert value_of(step, "gather_ids[0]") == str(rows.gather_ids[0])


def test_a_place_that_the_step_does_not_write_is_no_cell_and_an_unread_token_is_untold():
    step = decode_step(2)
    assert {value_of(step, f"{name}[900]") for name in LISTS} == {NO_CELL}
    assert value_of(step, f"{TABLE}[900][0]") == NO_CELL
    np.copyto(step.rows.token_ids, UNKNOWN)
    assert value_of(step, "input_ids[0]") is None


def test_the_browser_offers_the_same_lists():
    listed = json.loads(re.search(r"const CELL_LISTS = (\[.*?\]);", read_part("predict"))[1])
    assert listed == [*LISTS, TABLE]

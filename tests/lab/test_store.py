import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TraceError
from lab.columns import encode_column
from lab.snapshot import equal
from lab.store import StoredSteps, apply_deltas, encode_steps, table_deltas
from tests.lab.sample_steps import decode_step


def stored_again(steps):
    return StoredSteps(json.loads(json.dumps(encode_steps(steps))))


def test_steps_come_back_equal_in_both_modes_and_across_windows():
    for mode in ("light", "full"):
        steps = [decode_step(i, batch=1 + i % 8, mode=mode) for i in range(230)]
        again = stored_again(steps)
        assert len(again) == 230
        assert all(equal(a, b) for a, b in zip(steps, again, strict=True))
        assert equal(again[-1], steps[229])
        assert equal(tuple(again[198:203]), tuple(steps[198:203]))


def test_an_unseen_stage_stays_nan():
    step = decode_step(3)
    step.host_us[4] = np.nan
    assert np.isnan(stored_again([step])[0].host_us[4])


def test_a_thousand_steps_of_batch_eight_take_at_most_one_kilobyte_each():
    steps = [decode_step(i, mode="full", overlap=True) for i in range(1000)]
    size = len(gzip.compress(json.dumps(encode_steps(steps)).encode()))
    assert size / 1000 <= 1000, f"{size / 1000:.0f} bytes a step"


def test_no_steps_are_a_trace_too():
    assert len(stored_again([])) == 0


def test_an_index_outside_names_the_number_of_steps():
    again = stored_again([decode_step(0)])
    with pytest.raises(IndexError, match="step index 1 is outside the 1 recorded steps"):
        again[1]


def test_a_window_that_claims_billions_of_values_is_refused_before_they_are_made():
    stored = json.loads(json.dumps(encode_steps([decode_step(0)])))
    columns = stored["windows"][0]["columns"]
    columns[".rows.positions"][0] = columns[".rows.token_ids"][0] = 1 << 26
    with pytest.raises(TraceError, match=r"window 0 .* \(ValueError: more than 67108864 values in a window cannot be"):
        StoredSteps(stored)[0]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda window: window.update(columns=[]), "AttributeError"),
        (lambda window: window["columns"][".rows.kinds"].__setitem__(2, 5), "TypeError"),
    ],
)
def test_a_window_of_another_layout_is_damaged(change, kind):
    stored = json.loads(json.dumps(encode_steps([decode_step(0)])))
    change(stored["windows"][0])
    with pytest.raises(TraceError, match=rf"window 0 of the trace is damaged \({kind}"):
        StoredSteps(stored)[0]


def test_a_string_that_is_none_is_refused_when_the_file_is_opened():
    stored = json.loads(json.dumps(encode_steps([decode_step(0)])))
    stored["strings"][-1] = 5
    with pytest.raises(TypeError, match=r"^the table of strings holds 5$"):
        StoredSteps(stored)


@pytest.mark.parametrize("path", [".mode", ".rows.kinds:dtype"])
def test_a_string_is_not_counted_from_the_end(path):
    stored = json.loads(json.dumps(encode_steps([decode_step(0)])))
    stored["windows"][0]["columns"][path] = encode_column([-1], 1)
    with pytest.raises(TraceError, match=r"is damaged \(ValueError: string -1 is not in the table\); record it again"):
        StoredSteps(stored)[0]


def test_a_step_that_makes_no_sense_is_damaged():
    step = decode_step(0)
    step.rows.kinds[:] = 9
    with pytest.raises(TraceError, match=r"is damaged \(ValueError: rows.kinds holds 9 to 9, below 4 is possible\)"):
        stored_again([step])[0]


@pytest.mark.parametrize("damage", ["drop", "count", "text", "width"])
def test_a_damaged_window_raises_a_trace_error(damage):
    stored = json.loads(json.dumps(encode_steps([decode_step(0)])))
    columns = stored["windows"][0]["columns"]
    if damage == "drop":
        del columns[".rows.positions"]
    elif damage == "count":
        columns[".rows.positions"][0] += 1
    elif damage == "text":
        columns[".rows.positions"][2] = "????"
    else:
        columns[".rows.positions"][2] = "CQ=="
    with pytest.raises(TraceError, match="window 0 of the trace is damaged"):
        StoredSteps(stored)[0]


tables = st.lists(st.integers(0, 50), max_size=6).map(tuple)


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), tables), max_size=4), max_size=8))
def test_deltas_of_block_tables_are_undone_exactly(history):
    before, after = {}, {}
    for step in history:
        ids = [request_id for request_id, _ in step]
        wanted = tuple(table for _, table in step)
        deltas = table_deltas(ids, wanted, before)
        assert apply_deltas(ids, deltas, after) == wanted


def test_a_table_that_grows_by_a_block_costs_one_block():
    known = {7: (1, 2)}
    assert table_deltas([7], [(1, 2, 9)], known) == ((0, (9,)),)
    assert table_deltas([7], [(1, 2, 9)], known) == ((0, ()),)
    assert table_deltas([7], [(1,)], known) == ((2, ()),)

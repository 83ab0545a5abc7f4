"""What the browser gets says what the snapshots say, in few bytes."""

import dataclasses
import json
import zlib

import numpy as np
import pytest

from lab.flight import FlightView
from lab.ledger import CopyView, LedgerView, NodeView, OwnersView, PlaceView
from lab.snapshot import RowsView, SpanView
from lab.trace import Trace
from lab.widgets.frames import HEAD_TOKENS, MAX_VALUES, TAIL_TOKENS, FrameEncoder, deflate, encode
from tests.lab.sample_steps import decode_step, eager_step, int32, sample_header, sample_trace


@pytest.fixture(scope="module")
def encoded(full_trace):
    return FrameEncoder(full_trace)


def expand(groups):
    """Lay groups of rows out again, as the browser does: [request, kind, source, position] a row."""
    return [
        [rid, kind, source, first + offset]
        for rid, kind, source, _slot, first, count, _tokens in groups
        for offset in range(count)
    ]


def test_row_groups_give_back_every_row(full_trace, encoded):
    for step, frame in zip(full_trace.steps, encoded.frames, strict=True):
        rows = step.rows
        columns = (rows.request_ids, rows.kinds, rows.sources, rows.positions)
        assert expand(frame["rows"]) == [list(row) for row in zip(*(c.tolist() for c in columns), strict=True)]
        tokens = [token for group in frame["rows"] for token in group[6]]
        assert tokens == rows.token_ids.tolist()


def test_block_tables_come_back_from_their_changes(full_trace, encoded):
    tables: dict[int, list[int]] = {}
    for step, frame in zip(full_trace.steps, encoded.frames, strict=True):
        for request_id, kept, added in frame["bt"]:
            tables[request_id] = tables.get(request_id, [])[:kept] + added
        for request_id, table in zip(step.metadata.request_ids.tolist(), step.metadata.block_tables, strict=True):
            assert tables[request_id] == list(table)


def test_lengths_that_are_left_out_follow_from_those_that_travel(full_trace, encoded):
    for step, frame in zip(full_trace.steps, encoded.frames, strict=True):
        lengths = [q + cached for q, cached in zip(frame["meta"]["q"], frame["meta"]["cached"], strict=True)]
        assert lengths == step.metadata.kv_lens.tolist()


def test_a_table_that_only_grew_travels_as_its_new_blocks():
    encoder = FrameEncoder(Trace(sample_header(), [decode_step(7, batch=1), decode_step(8, batch=1)]))
    before = len(encoder.frames[0]["bt"][0][2])
    assert encoder.frames[1]["bt"] == [[0, before, [1 + before]]]


def test_a_paused_request_loses_its_table():
    step = decode_step(3, batch=1)
    paused = dataclasses.replace(step, step=4, schedule=dataclasses.replace(step.schedule, paused=(0,)))
    frames = FrameEncoder(Trace(sample_header(), [step, paused])).frames
    assert frames[1]["bt"] == [[0, 0, []]]


def test_a_long_chunk_keeps_its_ends_and_its_count():
    count = 2000
    rows = RowsView(
        request_ids=int32([5] * count),
        kinds=np.zeros(count, np.uint8),
        token_ids=int32(range(count)),
        positions=int32(range(100, 100 + count)),
        sources=np.zeros(count, np.uint8),
        source_slots=int32([-1] * count),
        gather_ids=int32([count - 1]),
    )
    step = dataclasses.replace(eager_step(0), rows=rows)
    [group] = FrameEncoder(Trace(sample_header(), [step])).frames[0]["rows"]
    assert group[4:6] == [100, count]
    assert group[6] == [*range(HEAD_TOKENS), *range(count - TAIL_TOKENS, count)]


def test_buffer_values_are_cut_to_the_cells_that_are_drawn():
    step = decode_step(3, mode="full")
    buffers = tuple(dataclasses.replace(view, values=np.arange(400, dtype=np.int32)) for view in step.buffers)
    frame = FrameEncoder(Trace(sample_header(), [dataclasses.replace(step, buffers=buffers)])).frames[0]
    assert frame["buf"][0][3] == list(range(MAX_VALUES))


def test_a_missing_stage_time_is_null_and_the_whole_is_plain_json():
    step = decode_step(3)
    step.host_us[4] = np.nan
    part = json.loads(zlib.decompress(encode(Trace(sample_header(), [step]))))
    assert part["frames"][0]["us"][4] is None
    assert all(isinstance(us, int) for at, us in enumerate(part["frames"][0]["us"]) if at != 4)


def test_promoted_are_only_those_whose_step_has_a_graph():
    step = decode_step(7, batch=3)
    good = dataclasses.replace(step, schedule=dataclasses.replace(step.schedule, promoted=(2,)))
    missed = dataclasses.replace(good, path=dataclasses.replace(step.path, key=None))
    for one, promoted in ((good, [2]), (missed, [])):
        assert FrameEncoder(Trace(sample_header(), [one])).frames[0]["sch"]["prom"] == promoted


def test_steps_that_are_missing_leave_a_gap():
    frames = FrameEncoder(Trace(sample_header(), [decode_step(3), decode_step(4), decode_step(9)])).frames
    assert [frame["gap"] for frame in frames] == [False, False, True]
    assert ("say.gap", {}) in frames[2]["say"]


def test_a_step_is_encoded_once_and_a_late_view_gets_what_it_lacks():
    trace = sample_trace(6)
    encoder = FrameEncoder(Trace(trace.header, trace.steps[:3]))
    encoder.extend(trace.steps, dataclasses.replace(trace.header, pieces={65: "A", 66: "B"}))
    encoder.extend(trace.steps, trace.header)
    assert [frame["s"] for frame in encoder.frames] == [0, 1, 2, 3, 4, 5]
    late = encoder.part(encoder.index_after(2))
    assert [frame["s"] for frame in late["frames"]] == [3, 4, 5]
    assert late["texts"] == [[66, "B"]]
    assert late["requests"] == []
    whole = encoder.part()
    assert dict(whole["texts"]) == {65: "A", 66: "B"}
    assert [request["id"] for request in whole["requests"]] == [0, 1]


def test_an_empty_trace_is_a_header():
    part = FrameEncoder(Trace(sample_header(), [])).part()
    assert part["frames"] == []
    assert len(part["header"]["stages"]) == 13


def test_the_pool_counts_the_dummys_block(full_trace, encoded):
    assert encoded.header["limits"]["blocks"] == 32 + 1
    assert encoded.header["limits"]["tokens_per_block"] == 16
    assert [capture["batch"] for capture in encoded.header["warmup"]] == [4, 4, 2, 2, 1, 1]


def test_a_step_of_eight_costs_less_than_300_bytes():
    trace = Trace(sample_header(), [decode_step(i) for i in range(1000)])
    assert len(deflate(FrameEncoder(trace).part())) < 300 * 1000


def test_checks_and_conditions_are_spelled_out_once_and_named_by_the_frame_that_has_them():
    steps = [decode_step(0), decode_step(1), eager_step(2), decode_step(3)]
    frames = FrameEncoder(Trace(sample_header(), steps)).frames
    assert [line[0] for line in frames[0]["run"]["check"]] == [line.name for line in steps[0].graph.check]
    assert [line[0] for line in frames[0]["path"]["cond"]] == [line.reason for line in steps[0].path.conditions]
    assert [frame["run"]["check"] for frame in frames[1:]] == [0, [], 0]
    assert [frame["path"]["cond"] for frame in frames[1::2]] == [0, 0]
    assert len(frames[2]["path"]["cond"]) == len(steps[2].path.conditions)


def test_ten_thousand_steps_of_eight_are_at_most_three_megabytes_on_the_wire_and_thirty_in_the_browser():
    steps = [decode_step(i) for i in range(2000)]
    part = FrameEncoder(Trace(sample_header(), steps)).part()
    assert len(deflate(part)) * 5 < 3e6
    assert len(json.dumps(part, separators=(",", ":"))) * 5 < 30e6


def test_a_frame_carries_the_ledger_drafts_and_the_order_of_stages():
    step = decode_step(7, batch=2, overlap=True)
    spans = tuple(dataclasses.replace(span, kind="E", num_rows=3, drafts=(4, 5)) for span in step.schedule.spans)
    schedule = dataclasses.replace(step.schedule, spans=spans, draft_len=2, asked=(SpanView(1, "C", 0, 8, 1),))
    copies = (CopyView("OFFLOAD", 3, 0, 16),)
    reservation = dataclasses.replace(
        step.reservation, copies=copies, ledger=LedgerView(32, 4, (OwnersView(3, (0, 1)),))
    )
    entered = LedgerView(
        32, 4, added=(NodeView(0, -1, (7, 8), 16, "salt"),), places=(PlaceView(0, (), 2),), removed=(9,)
    )
    outcome = dataclasses.replace(step.outcome, accepted=((0, 1), (1, 2)), ledger=entered)
    changed = dataclasses.replace(step, schedule=schedule, reservation=reservation, outcome=outcome)
    [frame] = FrameEncoder(Trace(sample_header(), [changed])).frames
    assert (frame["sch"]["k"], frame["sch"]["asked"]) == (2, [[1, 0, 8]])
    assert frame["res"]["cp"] == [["OFFLOAD", 3, 0, 16]]
    assert frame["res"]["led"] == [[[3, 0, 1]], [], [], [], 32, 4]
    assert frame["out"]["led"] == [[], [[0, -1, [7, 8], "salt"]], [[0, 2]], [9], 32, 4]
    assert frame["out"]["acc"] == [[0, 1], [1, 2]]
    order, unread, late, device = frame["run"]["fl"]
    assert (len(order), unread, late, device) == (10, [6], [[0, 2, 0]], None)
    alone = dataclasses.replace(step.graph, flight=FlightView(tuple(range(20, 30))))
    [frame] = FrameEncoder(Trace(sample_header(), [dataclasses.replace(step, graph=alone)])).frames
    assert frame["run"]["fl"][0] == [20]


def test_picked_frames_begin_with_the_ledger_of_those_left_out():
    steps = [decode_step(i, batch=1) for i in range(24)]
    part = json.loads(zlib.decompress(encode(Trace(sample_header(), steps), [0, 20])))
    first, second = part["frames"]
    assert first["res"]["led"][0] == []
    assert len(second["res"]["led"][0]) == 1, "the block that was added at step 8"
    assert len(second["res"]["led"][1]) == 1, "the node that entered at step 7"

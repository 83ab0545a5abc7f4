import dataclasses

import numpy as np
import pytest

from engine.inputs.records import Writer
from engine.probe import Stage
from engine.scheduled import RowKind
from lab.snapshot import ROW_KINDS, STAGES, WRITERS, BufferView, OriginView, equal
from tests.lab.sample_steps import decode_step


def view(*origins, live_rows=4):
    return BufferView("input_ids", "persistent", 64, 16, "int32", live_rows, (), origins)


def test_the_names_behind_the_codes_are_the_engines_own():
    assert [stage.name for stage in Stage] == list(STAGES)
    assert {kind.value for kind in RowKind} == set(ROW_KINDS)
    assert {writer.value for writer in Writer} <= set(WRITERS)


def test_a_buffer_that_nobody_wrote_has_no_known_rows():
    buffer = view()
    assert buffer.num_known_rows == 0
    assert buffer.writer_steps.tolist() == []
    assert buffer.stale_rows(3).tolist() == [0, 1, 2, 3]


def test_gaps_between_origins_were_never_written():
    buffer = view(OriginView(1, 2, 5, "host_copy"), OriginView(3, 5, 4, "zero_fill"))
    assert buffer.writer_steps.tolist() == [-1, 5, -1, 4, 4]
    assert [WRITERS[code] for code in buffer.writers] == ["never", "host_copy", "never", "zero_fill", "zero_fill"]
    assert buffer.ages(5).tolist() == [-1, 0, -1, 1, 1]
    assert buffer.stale_rows(5).tolist() == [0, 2, 3]


def test_a_snapshot_cannot_be_edited():
    with pytest.raises(dataclasses.FrozenInstanceError):
        decode_step(0).step = 3


def test_a_buffer_is_found_by_name_and_layer():
    step = decode_step(2)
    assert step.buffer("input_ids").name == "input_ids"
    assert step.buffer("kv_lens", "metadata").layer == "metadata"
    assert step.buffer("kv_lens") is None


def test_padding_rows_are_counted_by_kind():
    rows = decode_step(1, batch=3).rows
    assert rows.num_padding_rows == 0
    padded = dataclasses.replace(rows, kinds=np.array([2, 3, 3], np.uint8))
    assert (padded.num_rows, padded.num_padding_rows) == (3, 2)


def test_every_field_of_a_snapshot_is_compared():
    step, other = decode_step(5), decode_step(6, batch=3, mode="full")
    for field in dataclasses.fields(step):
        mixed = dataclasses.replace(step, **{field.name: getattr(other, field.name)})
        assert equal(step, mixed) is (field.name == "version"), field.name
    assert not equal(step, other)
    assert not equal(np.zeros(2, np.int32), np.zeros(2, np.int64))

"""What ``prepare`` writes, what it leaves alone, and what it refuses."""

import dataclasses

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.attention.interface import KVCacheParams, SteadyStep
from engine.device import ImmediateStream
from engine.errors import CapacityError
from tests.engine.attention.paged_world import World, make_backend


class CountingStream(ImmediateStream):
    def __init__(self):
        super().__init__()
        self.copies = []

    def copy_(self, dst, src):
        self.copies.append(dst.data_ptr())
        super().copy_(dst, src)


@pytest.fixture
def world():
    world = World(make_backend("native", stream=CountingStream()))
    world.scatter(4)
    return world


def grown(step, by=1):
    params = step.kv_cache_params
    cached = tuple(n + by for n in params.num_cached_tokens_per_seq)
    return dataclasses.replace(step, kv_cache_params=KVCacheParams(use_cache=True, num_cached_tokens_per_seq=cached))


def test_a_step_is_written_and_rows_past_it_are_neutral(world):
    metadata = world.metadata(sequences=6, rows=12)
    world.rows([3, 0, 5])
    metadata.prepare(world.step([4, 1, 2]))
    assert metadata.kv_lens.tolist() == [7, 1, 7, 0, 0, 0]
    assert metadata.seq_lens.tolist() == [4, 1, 2, 0, 0, 0]
    assert metadata.query_start.tolist() == [0, 4, 5, 7, 7, 7, 7]
    assert metadata.row_to_sequence.tolist() == [0, 0, 0, 0, 1, 2, 2, 0, 0, 0, 0, 0]
    assert [tuple(row) for row in metadata.block_table[:3].tolist()] == [s.blocks for s in world.sequences[:3]]
    assert not metadata.block_table[3:].any()
    metadata.check()


def test_a_smaller_step_leaves_nothing_of_the_larger_one(world):
    metadata = world.metadata(sequences=4, rows=8)
    metadata.prepare(world.step([2, 2, 2, 2]))
    short = world.step([1], tables=[world.sequences[0].blocks[:2]])
    metadata.prepare(short)
    assert metadata.kv_lens.tolist() == [1, 0, 0, 0]
    assert metadata.block_table[0].tolist() == [*world.sequences[0].blocks[:2], 0, 0, 0, 0, 0, 0]
    assert not metadata.block_table[1:].any()
    assert not metadata.row_to_sequence.any()
    metadata.check()


def test_steady_decode_copies_kv_lens_alone(world):
    metadata = world.metadata(sequences=3, rows=3, is_cuda_graph=True)
    step = world.step([1, 1, 1])
    metadata.prepare(step)
    copies = metadata._stream.copies
    copies.clear()
    for _ in range(3):
        step = grown(step)
        metadata.prepare(step)
    assert copies == [metadata.kv_lens.data_ptr()] * 3
    tables = (step.block_tables[0][:5], *step.block_tables[1:])
    metadata.prepare(dataclasses.replace(step, block_tables=tables))
    assert copies[-1] == metadata.kv_lens.data_ptr()
    assert len(copies) == 6, "the changed row, its number, and the lengths"
    assert [(w.name, w.start, w.end) for w in metadata.written] == [("kv_lens", 0, 3), ("block_table", 0, 1)]
    metadata.check()


def test_addresses_never_change(world):
    metadata = world.metadata()
    before = {name: tensor.data_ptr() for name, tensor in metadata.tensors().items()}
    for counts in ([3, 1], [1, 1, 1, 1], [20]):
        world.run(metadata, counts)
    assert {name: tensor.data_ptr() for name, tensor in metadata.tensors().items()} == before


def test_a_graphs_metadata_knows_its_rows_before_the_first_step(world):
    metadata = world.metadata(sequences=3, rows=6, is_cuda_graph=True)
    assert metadata.query_start.tolist() == [0, 2, 4, 6]
    assert metadata.row_to_sequence.tolist() == [0, 0, 1, 1, 2, 2]
    assert not metadata.kv_lens.any()


def test_a_graph_with_several_rows_a_sequence_attends_causally(world):
    metadata = world.metadata(sequences=3, rows=9, is_cuda_graph=True)
    for _ in range(3):
        got, expected = world.run(metadata, [3, 3, 3])
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1, 1, 1], "allocated for 2 sequences, the step has 3"),
        ([4, 5], "allocated for 8 rows, the step has 9"),
    ],
)
def test_a_step_above_capacity_is_refused_with_numbers(world, counts, message):
    metadata = world.metadata(sequences=2, rows=8)
    before = metadata.step_table.clone()
    with pytest.raises(CapacityError, match=message):
        metadata.prepare(world.step(counts))
    assert torch.equal(metadata.step_table, before)


def test_a_table_wider_than_the_capacity_is_refused(world):
    with pytest.raises(CapacityError, match="8 blocks in one sequence, the step has 9"):
        world.metadata().prepare(world.step([1], tables=[tuple(range(9))]))


def test_a_sequence_longer_than_its_blocks_is_refused(world):
    with pytest.raises(CapacityError, match="5 KV tokens needs 2 blocks of 4, its table has 1; reserve before"):
        world.metadata().prepare(world.step([5], tables=[(3,)]))


def test_a_graphs_metadata_refuses_other_row_counts(world):
    metadata = world.metadata(sequences=3, rows=3, is_cuda_graph=True)
    with pytest.raises(CapacityError, match="graph of 3 sequences with 1 rows each"):
        metadata.prepare(world.step([1, 1]))


def steady(step, changed=()):
    return SteadyStep(len(step.seq_lens), tuple(changed), tuple(step.block_tables[row] for row in changed))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_advancing_leaves_what_preparing_would_have_written(world, data):
    count = data.draw(st.integers(1, 4))
    advanced, prepared = (world.metadata(sequences=6, rows=6) for _ in range(2))
    step = world.step([1] * count, tables=[world.sequences[0].blocks[:1]] * count)
    for metadata in (advanced, prepared):
        metadata.prepare(step)
    for _ in range(data.draw(st.integers(1, 30))):
        step, tables, changed = grown(step), list(step.block_tables), []
        for row in range(count):
            if step.kv_lens[row] > len(tables[row]) * advanced.capacity.tokens_per_block:
                tables[row] = world.sequences[0].blocks[: len(tables[row]) + 1]
                changed.append(row)
        step = dataclasses.replace(step, block_tables=tuple(tables))
        advanced.advance(steady(step, changed))
        prepared.prepare(step)
        assert torch.equal(advanced.step_table, prepared.step_table)
        assert {w.name for w in advanced.written} == ({"kv_lens", "block_table"} if changed else {"kv_lens"})
        advanced.check()
    assert advanced.step == step


def test_advancing_past_the_blocks_is_refused_and_changes_nothing(world):
    metadata = world.metadata(sequences=2, rows=2)
    size = metadata.capacity.tokens_per_block
    world.rows([size - 1, 0])
    tables = [world.sequences[row].blocks[:1] for row in range(2)]
    metadata.prepare(world.step([1, 1], tables=tables))
    before = metadata.step_table.clone()
    with pytest.raises(CapacityError, match=f"sequence 0 would have {size + 1} KV tokens in blocks that hold {size}"):
        metadata.advance(SteadyStep(2))
    assert torch.equal(metadata.step_table, before)
    metadata.check()


def test_advancing_copies_nothing_while_no_table_grows(world):
    metadata = world.metadata(sequences=3, rows=3, is_cuda_graph=True)
    metadata.prepare(world.step([1, 1, 1]))
    metadata._stream.copies.clear()
    for _ in range(3):
        metadata.advance(SteadyStep(3))
    assert metadata._stream.copies == []
    assert metadata.kv_lens.tolist() == [4, 4, 4]

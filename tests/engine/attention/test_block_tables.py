"""Block tables on the device: rows that changed, cells that were added, and nothing else."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.attention.block_tables import BlockTables, leading_run
from engine.device import DeviceSpec, LaggedStream

CPU = DeviceSpec(torch.device("cpu"), torch.float32, is_cuda=False)
ROWS, WIDTH = 4, 6


class World:
    """Tables over a matrix, with a stream that is late and counts what is copied."""

    def __init__(self):
        self.matrix = torch.zeros(ROWS, WIDTH + 1, dtype=torch.int32)
        self.stream = LaggedStream(3)
        self.copied = 0
        copy = self.stream.copy_

        def counting(dst, src):
            self.copied += src.numel()
            copy(dst, src)

        self.stream.copy_ = counting
        self.tables = BlockTables(self.matrix, tokens_per_block=4, spec=CPU, stream=self.stream)

    def expect(self, tables):
        self.stream.synchronize()
        for row in range(ROWS):
            table = tables[row] if row < len(tables) else ()
            assert self.matrix[row].tolist() == [*table, *([0] * (WIDTH - len(table))), leading_run(table)]
        self.tables.check(tables)


@pytest.mark.parametrize(
    ("table", "run"), [((), 0), ((5,), 1), ((5, 6, 7), 3), ((5, 6, 9, 10), 2), ((3, 2, 1), 1), ((0, 1), 2)]
)
def test_a_leading_run_ends_at_the_first_jump(table, run):
    assert leading_run(table) == run


block_ids = st.lists(st.integers(1, 9), max_size=WIDTH).map(tuple)


@settings(deadline=None)
@given(st.lists(st.lists(block_ids, max_size=ROWS), max_size=6))
def test_the_matrix_holds_the_tables_written_last(steps):
    world = World()
    for tables in steps:
        world.tables.write(tables)
        world.expect(tables)


@settings(deadline=None)
@given(st.data())
def test_growing_leaves_what_writing_would_have(data):
    world = World()
    tables = data.draw(st.lists(block_ids, min_size=1, max_size=ROWS))
    world.tables.write(tables)
    for _ in range(data.draw(st.integers(1, 5))):
        rows = [row for row, table in enumerate(tables) if len(table) < WIDTH and data.draw(st.booleans())]
        for row in rows:
            room = WIDTH - len(tables[row])
            tables[row] += tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=room)))
        if rows:
            world.tables.grow(tuple(rows), [tables[row] for row in rows])
            assert world.tables.changed == tuple(rows)
        world.expect(tables)


def test_only_what_changed_is_copied():
    world = World()
    tables = [(1, 2), (3,), (5, 7)]
    world.tables.write(tables)
    world.copied = 0
    world.tables.write(list(tables))
    assert (world.copied, world.tables.changed) == (0, ())
    world.tables.grow((1,), [(3, 9)])
    assert world.copied == 2 * 2, "the new block and the length of the run, each with its place"
    world.copied = 0
    world.tables.write([*world.tables.held[:2], (8,)])
    assert world.copied == WIDTH + 1 + 1, "a row, and its number"
    world.expect([(1, 2), (3, 9), (8,)])


def test_more_new_cells_than_staging_holds_are_written_as_rows():
    world = World()
    world.tables.write([()] * ROWS)
    tables = [tuple(range(row, row + WIDTH)) for row in range(ROWS)]
    world.tables.grow((0, 1, 2, 3), tables)
    world.expect(tables)


def test_an_interrupted_write_is_repeated_whole():
    world = World()
    tables = [(1, 2), (3,)]
    world.tables.write(tables)
    held, world.tables.held = world.tables.held, []
    assert held == tables
    world.tables.write(tables)
    assert world.tables.changed == (0, 1)
    world.expect(tables)


def test_rows_past_a_smaller_step_are_emptied_after_an_interrupted_write_too():
    world = World()
    world.tables.write([(1, 2), (3,), (4,)])
    world.tables.held = []
    world.tables.write([(1, 2)])
    assert world.tables.changed == (0, 1, 2)
    world.expect([(1, 2)])

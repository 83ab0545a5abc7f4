"""BlockTables: the block table of each sequence on the device, kept up by what changed.

The matrix is [S, W + 1]: a row's first W entries are its table (block 0 where it has none), the last one says how many
of its leading blocks follow one another in the pool. A table that another one replaces is written as a row; a table
that only grew, as its new cells. Rows that did not change are not copied.

Does not: know lengths, allocate blocks, or decide which tables changed in a steady step (the cache manager knows).
Source: vLLM's newer runner uploads new block ids alone; the packing of places and ids into one copy is our own.
"""

from collections.abc import Sequence

import numpy as np
import torch

from engine.device import DeviceSpec, PinnedRing, Stream

BlockTable = tuple[int, ...]


class BlockTables:
    """The matrix on the device, its mirror on the host, and the tables that were written last."""

    def __init__(self, matrix: torch.Tensor, *, tokens_per_block: int, spec: DeviceSpec, stream: Stream) -> None:
        """Take the device's matrix, [S, W + 1] int32, all zeros; it never moves."""
        S, columns = matrix.shape
        self._matrix, self._flat = matrix, matrix.view(-1)
        self._stream = stream
        self._tokens_per_block = tokens_per_block
        self._width = columns - 1
        self._most_cells = 4 * S
        self._rows_ring = PinnedRing((S, columns), torch.int32, spec)
        self._places_ring = PinnedRing((S,), torch.int64, spec)
        self._cells_ring = PinnedRing((2 * self._most_cells,), torch.int64, spec)
        device = spec.torch_device
        self._rows_dev = torch.zeros((S, columns), dtype=torch.int32, device=device)
        self._places_dev = torch.zeros(S, dtype=torch.int64, device=device)
        self._cells_dev = torch.zeros(2 * self._most_cells, dtype=torch.int64, device=device)
        self._ids_dev = self._cells_dev.view(torch.int32)[::2]
        self._host = np.zeros((S, columns), dtype=np.int32)
        self.room = np.zeros(S, dtype=np.int32)  # KV tokens that each table holds
        self._runs = [0] * S  # the last column, as plain integers
        self.held: list[BlockTable] = []  # empty when it is not known what was written
        self._num_used = 0  # rows from here on are empty, whatever an interrupt left of ``held``
        self.changed: tuple[int, ...] = ()  # rows that the last call wrote, ascending

    def write(self, tables: Sequence[BlockTable]) -> None:
        """Write the rows that differ from the tables held; a row past them is emptied."""
        held = self.held
        # The manager hands out the same tuple until the table grows, so comparing identities is enough to be sure.
        rows = [row for row, table in enumerate(tables) if row >= len(held) or held[row] is not table]
        emptied = range(len(tables), self._num_used)
        self.changed = (*rows, *emptied)
        if self.changed:
            self._write_rows(self.changed, [*[tables[row] for row in rows], *([()] * len(emptied))])
            del self.held[len(tables) :]
            self._num_used = len(tables)

    def grow(self, rows: tuple[int, ...], tables: Sequence[BlockTable]) -> None:
        """Write tables that begin with the ones held, by their new cells alone. Order: rows ascending."""
        held, self.held = self.held, []  # whatever is not known after an interrupt is written again
        columns, width, runs, room = self._width + 1, self._width, self._runs, self.room
        places: list[int] = []
        values: list[int] = []
        for row, table in zip(rows, tables, strict=True):
            known, first, length = len(held[row]), row * columns, len(table)
            places.extend(range(first + known, first + length))
            values.extend(table[known:])
            if runs[row] == known:  # it was one stretch, which may go on
                runs[row] = _run_on(table, known)
                places.append(first + width)
                values.append(runs[row])
            held[row] = table
            room[row] = length * self._tokens_per_block
        self.changed = rows
        cells = np.array(places + values, dtype=np.int64)
        self._host.reshape(-1)[cells[: len(places)]] = cells[len(places) :]
        if len(places) > self._most_cells:
            self._scatter_rows(self._host[list(rows)], rows)
        else:
            self._scatter_cells(cells)
        self.held = held

    def check(self, tables: Sequence[BlockTable]) -> None:
        """Recompute the mirror from the tables."""
        width = self._width
        for row, table in zip(self._host, tables, strict=False):
            assert tuple(row[: len(table)]) == table
            assert not row[len(table) : width].any()
            assert int(row[width]) == leading_run(table)
        assert self._runs == [int(run) for run in self._host[:, width]]
        assert not self._host[len(tables) :].any()
        assert list(self.room[: len(tables)]) == [len(table) * self._tokens_per_block for table in tables]

    def _write_rows(self, rows: tuple[int, ...], tables: Sequence[BlockTable]) -> None:
        held, self.held = self.held, []
        self._num_used = max(self._num_used, rows[-1] + 1)
        width, host = self._width, self._host
        held.extend([()] * (rows[-1] + 1 - len(held)))
        for row, table in zip(rows, tables, strict=True):
            host[row, : len(table)] = table
            host[row, len(table) : width] = 0
            host[row, width] = self._runs[row] = leading_run(table)
            self.room[row] = len(table) * self._tokens_per_block
            held[row] = table
        if len(rows) == len(host):
            self._stream.copy_(self._matrix, self._rows_ring.stage(host))
            self._rows_ring.mark_copied(self._stream)
        else:
            self._scatter_rows(host[list(rows)], rows)
        self.held = held

    def _scatter_rows(self, values: np.ndarray, at: tuple[int, ...]) -> None:
        rows, places = self._rows_dev[: len(at)], self._places_dev[: len(at)]
        self._stream.copy_(rows, self._rows_ring.stage(values))
        self._rows_ring.mark_copied(self._stream)
        self._stream.copy_(places, self._places_ring.stage(at))
        self._places_ring.mark_copied(self._stream)
        self._stream.launch(lambda: self._matrix.index_copy_(0, places, rows))

    def _scatter_cells(self, cells: np.ndarray) -> None:
        """Copy places, then ids, together, as 64-bit integers; the low words of the ids are the 32-bit ones."""
        count = len(cells) // 2
        self._stream.copy_(self._cells_dev[: 2 * count], self._cells_ring.stage(cells))
        self._cells_ring.mark_copied(self._stream)
        at, ids = self._cells_dev[:count], self._ids_dev[count : 2 * count]
        self._stream.launch(lambda: self._flat.index_copy_(0, at, ids))


def leading_run(table: BlockTable) -> int:
    """Count the leading blocks of a table that follow one another in the pool."""
    return _run_on(table, 0)


def _run_on(table: BlockTable, run: int) -> int:
    """Continue a count of leading blocks that is right up to ``run``."""
    while run < len(table) and (run == 0 or table[run] == table[run - 1] + 1):
        run += 1
    return run

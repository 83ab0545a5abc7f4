"""What both backends share: the step's lengths and block tables as device tensors, at fixed addresses.

``prepare`` writes only what changed. In the decode steady state that is kv_lens alone: one copy of S integers from
a pinned mirror. Tables are copied again only when some sequence got a block; lengths, row map and query starts only
when the row counts changed. A graph's row counts are a constant of its key, so its metadata writes them once.

Which rows count: row n is *live* when n < query_start[S] and its position < kv_lens[row_to_sequence[n]]. Rows
of padding tokens, and rows of a sequence with kv_len 0, are not live: nothing is written for them and their output
is zero. The rule reads device tensors only.

Does not: attend (``vanilla.py``, ``native.py``), or own KV.
Source: TensorRT-LLM's and FlashInfer's per-step tables, with one derived tensor of our own (``run_blocks``).
"""

import abc
from typing import Final

import numpy as np
import torch

from engine.attention.interface import AttentionMetadata, AttentionStep, MetadataCapacity
from engine.device import DeviceSpec, PinnedRing, Stream
from engine.errors import CapacityError
from engine.kv_cache.storage import KVStorage

_NAMES: Final[tuple[str, ...]] = ("kv_lens", "query_start", "run_blocks", "block_table", "seq_lens", "row_to_sequence")
_UNKNOWN: Final[tuple[int, ...]] = (-1,)


class PagedMetadata(AttentionMetadata, abc.ABC):
    """Lengths and tables of one step, written in place.

    Shapes: those of ``AttentionMetadata``, and run_blocks [S] int32: how many leading blocks of each table follow
    one another in the pool, so that a kernel may read them as one stretch. All are views of ``step_table`` (order:
    kv_lens, query_start, run_blocks, block_table, seq_lens, row_to_sequence), so that a host kernel reads them at once.
    """

    def __init__(self, storage: KVStorage, capacity: MetadataCapacity, *, spec: DeviceSpec, stream: Stream) -> None:
        self.capacity = capacity
        self.step = None
        self.storage = storage
        self._stream = stream
        S, N, W = capacity.max_num_sequences, capacity.max_num_tokens, capacity.max_blocks_per_seq
        sizes = dict(zip(_NAMES, (S, S + 1, S, S * W, S, N), strict=True))
        self.step_table = torch.zeros(sum(sizes.values()), dtype=torch.int32, device=spec.torch_device)
        flat: dict[str, torch.Tensor] = dict(zip(_NAMES, self.step_table.split(list(sizes.values())), strict=True))
        self._flat = flat
        self.kv_lens, self.seq_lens = flat["kv_lens"], flat["seq_lens"]
        self.block_table = flat["block_table"].view(S, W)
        self.row_to_sequence, self.query_start = flat["row_to_sequence"], flat["query_start"]
        self.run_blocks = flat["run_blocks"]
        self._rings = {name: PinnedRing((sizes[name],), torch.int32, spec) for name in _NAMES}
        self._table_host = np.zeros((S, W), dtype=np.int32)
        self._runs_host = np.zeros(S, dtype=np.int32)
        self._kv_lens_host = np.zeros(S, dtype=np.int32)
        self._tables: tuple[tuple[int, ...], ...] = ()
        self._seq_lens: tuple[int, ...] = ()
        if capacity.is_cuda_graph:
            self._write_rows((N // S,) * S)

    def prepare(self, step: AttentionStep) -> None:
        """Write the step into the tensors, in place; only what changed is copied.

        Raises: CapacityError when the step exceeds the capacity, or is not the shape of this graph's key.
        """
        kv_lens = step.kv_lens
        self._require_fits(step, kv_lens)
        self.written = ()
        if step.seq_lens != self._seq_lens:
            self._write_rows(step.seq_lens)
        if step.block_tables != self._tables:
            self._write_tables(step.block_tables)
        self._kv_lens_host[: len(kv_lens)] = kv_lens
        self._kv_lens_host[len(kv_lens) :] = 0
        self._copy("kv_lens", self._kv_lens_host)
        self.step = step

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name every device tensor that a graph may read, the KV pool included."""
        return {**{name: getattr(self, name) for name in _NAMES}, **self.storage.tensors()}

    def check(self) -> None:
        """Recompute the host mirrors from the step; compare addresses with the allocations."""
        for name in _NAMES:
            assert getattr(self, name).data_ptr() == self._flat[name].data_ptr()
        if self.step is None:
            return
        tables = self.step.block_tables
        for row, table in zip(self._table_host, tables, strict=False):
            assert tuple(row[: len(table)]) == table
            assert not row[len(table) :].any()
        assert not self._table_host[len(tables) :].any()
        assert tuple(self._kv_lens_host[: len(tables)]) == self.step.kv_lens
        assert [int(n) for n in self._runs_host[: len(tables)]] == [leading_run(table) for table in tables]

    def _copy(self, name: str, values: np.ndarray) -> None:
        ring = self._rings[name]
        self._stream.copy_(self._flat[name], ring.stage(values))
        ring.mark_copied(self._stream)
        self.written += (name,)

    def _write_rows(self, seq_lens: tuple[int, ...]) -> None:
        S, N = self.capacity.max_num_sequences, self.capacity.max_num_tokens
        self._seq_lens = _UNKNOWN  # an interrupt in here must not leave the old rows' name on the new rows
        lengths = np.zeros(S, dtype=np.int32)
        lengths[: len(seq_lens)] = seq_lens
        starts = np.zeros(S + 1, dtype=np.int32)
        np.cumsum(lengths, out=starts[1:])
        rows = np.zeros(N, dtype=np.int32)
        rows[: starts[-1]] = np.repeat(np.arange(S, dtype=np.int32), lengths)
        self._copy("seq_lens", lengths)
        self._copy("query_start", starts)
        self._copy("row_to_sequence", rows)
        self._seq_lens = seq_lens

    def _write_tables(self, tables: tuple[tuple[int, ...], ...]) -> None:
        before, self._tables = self._tables, ()  # likewise: whatever is not known is written again
        for index, table in enumerate(tables):
            if index < len(before) and before[index] is table:
                continue  # the manager hands out the same tuple until the table grows
            self._table_host[index, : len(table)] = table
            self._table_host[index, len(table) :] = 0
            self._runs_host[index] = leading_run(table)
        self._table_host[len(tables) :] = 0
        self._runs_host[len(tables) :] = 0
        self._copy("block_table", self._table_host.reshape(-1))
        self._copy("run_blocks", self._runs_host)
        self._tables = tables

    def _require_fits(self, step: AttentionStep, kv_lens: tuple[int, ...]) -> None:
        limit = self.capacity
        width = max(map(len, step.block_tables), default=0)
        rows = sum(step.seq_lens)
        checks = (
            ("sequences", step.num_seqs, limit.max_num_sequences),
            ("rows", max(rows, step.num_tokens, step.padded_num_tokens or 0), limit.max_num_tokens),
            ("blocks in one sequence", width, limit.max_blocks_per_seq),
        )
        for what, got, most in checks:
            if got > most:
                message = f"attention metadata was allocated for {most} {what}, the step has {got}; raise the capacity"
                raise CapacityError(message)
        for kv_len, table in zip(kv_lens, step.block_tables, strict=True):
            if kv_len > len(table) * limit.tokens_per_block:
                message = (
                    f"a sequence of {kv_len} KV tokens needs {-(-kv_len // limit.tokens_per_block)} blocks of "
                    f"{limit.tokens_per_block}, its table has {len(table)}; reserve before preparing"
                )
                raise CapacityError(message)
        if limit.is_cuda_graph and step.seq_lens != self._seq_lens:
            message = (
                f"this metadata belongs to a graph of {limit.max_num_sequences} sequences with "
                f"{limit.max_num_tokens // limit.max_num_sequences} rows each, the step has rows {step.seq_lens}; "
                f"pad the batch to the graph's size or run it eagerly"
            )
            raise CapacityError(message)


def leading_run(table: tuple[int, ...]) -> int:
    """Count the leading blocks of a table that follow one another in the pool."""
    for index in range(1, len(table)):
        if table[index] != table[index - 1] + 1:
            return index
    return len(table)

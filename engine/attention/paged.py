"""What both backends share: the step's lengths and block tables as device tensors, at fixed addresses.

``prepare`` writes only what changed. Of the tables it copies the rows that changed; lengths, row map and query starts
only when the row counts changed. A graph's row counts are a constant of its key, so its metadata writes them once.
In the steady state ``advance`` adds one to kv_lens on the device and copies the rows of tables that grew.

Which rows count: row n is *live* when n < query_start[S] and its position < kv_lens[row_to_sequence[n]]. Rows
of padding tokens, and rows of a sequence with kv_len 0, are not live: nothing is written for them and their output
is zero. The rule reads device tensors only.

Does not: attend (``vanilla.py``, ``native.py``), or own KV.
Source: TensorRT-LLM's and FlashInfer's per-step tables, with one derived tensor of our own (``run_blocks``).
"""

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Final

import numpy as np
import torch

from engine.attention.block_tables import BlockTables
from engine.attention.interface import AttentionMetadata, AttentionStep, MetadataCapacity, SteadyStep, TensorWrite
from engine.device import DeviceSpec, PinnedRing, Stream
from engine.errors import CapacityError
from engine.kv_cache.storage import KVStorage

_NAMES: Final[tuple[str, ...]] = ("kv_lens", "query_start", "table", "seq_lens", "row_to_sequence")
_UNKNOWN: Final[tuple[int, ...]] = (-1,)


class PagedMetadata(AttentionMetadata, abc.ABC):
    """Lengths and tables of one step, written in place.

    Shapes: those of ``AttentionMetadata``, and run_blocks [S] int32: how many leading blocks of each table follow
    one another in the pool, so that a kernel may read them as one stretch. It is the last column of one [S, W + 1]
    matrix, whose first W are block_table, so that a row of both is one write. All are views of ``step_table`` (order:
    kv_lens, query_start, that matrix, seq_lens, row_to_sequence), so that a host kernel reads them at once.
    """

    def __init__(self, storage: KVStorage, capacity: MetadataCapacity, *, spec: DeviceSpec, stream: Stream) -> None:
        self.capacity = capacity
        self.storage = storage
        self._stream = stream
        S, N, W = capacity.max_num_sequences, capacity.max_num_tokens, capacity.max_blocks_per_seq
        sizes = dict(zip(_NAMES, (S, S + 1, S * (W + 1), S, N), strict=True))
        self.step_table = torch.zeros(sum(sizes.values()), dtype=torch.int32, device=spec.torch_device)
        flat: dict[str, torch.Tensor] = dict(zip(_NAMES, self.step_table.split(list(sizes.values())), strict=True))
        self._flat = flat
        self.kv_lens, self.seq_lens = flat["kv_lens"], flat["seq_lens"]
        self._table = flat["table"].view(S, W + 1)
        self.block_table, self.run_blocks = self._table[:, :W], self._table[:, W]
        self.row_to_sequence, self.query_start = flat["row_to_sequence"], flat["query_start"]
        self._rings = {name: PinnedRing((sizes[name],), torch.int32, spec) for name in _NAMES if name != "table"}
        self._tables = BlockTables(self._table, tokens_per_block=capacity.tokens_per_block, spec=spec, stream=stream)
        self._writes: list[TensorWrite] = []  # of the last prepare, the tables' apart
        self._kv_lens_host = np.zeros(S, dtype=np.int32)
        self._step: AttentionStep | None = None
        self._num_advanced = 0  # steady steps that _step and _kv_lens_host do not know of
        self._steps_left = 0
        self._live = self.kv_lens[:0]
        self._seq_lens: tuple[int, ...] = ()
        if capacity.is_cuda_graph:
            self._write_rows((N // S,) * S)

    @property
    def step(self) -> AttentionStep | None:
        """The step last prepared; after steady steps it is put together here, for nobody else needs it."""
        self._settle()
        return self._step

    @property
    def written(self) -> tuple[TensorWrite, ...]:
        """What the last prepare or advance wrote."""
        at = np.array(self._tables.changed, dtype=np.int64)
        runs = np.split(at, np.flatnonzero(np.diff(at) != 1) + 1) if len(at) else []
        return (*self._writes, *[TensorWrite("block_table", int(run[0]), int(run[-1]) + 1) for run in runs])

    def prepare(self, step: AttentionStep) -> None:
        """Write the step into the tensors, in place; only what changed is copied.

        Raises: CapacityError when the step exceeds the capacity, or is not the shape of this graph's key.
        """
        kv_lens = step.kv_lens
        self._require_fits(step, kv_lens)
        self._writes.clear()
        if step.seq_lens != self._seq_lens:
            self._write_rows(step.seq_lens)
        self._tables.write(step.block_tables)
        self._kv_lens_host[: len(kv_lens)] = kv_lens
        self._kv_lens_host[len(kv_lens) :] = 0
        self._copy("kv_lens", self._kv_lens_host)
        self._step, self._num_advanced = step, 0
        self._live = self.kv_lens[: step.num_seqs]
        self._steps_left = self._room(step.num_seqs)

    def derive_kv_lens(self, start: int, end: int, derive: Callable[[torch.Tensor], object]) -> None:
        """Let device work lower the lengths of some sequences; what the host knows of them is an upper bound then."""
        lengths = self.kv_lens[start:end]
        self._stream.launch(lambda: derive(lengths))
        self._writes.append(TensorWrite("kv_lens", start, end, in_place_add=True))

    def advance(self, step: SteadyStep) -> None:
        """Add one to every live length on the device, and write the tables that grew; the mirror follows later.

        Raises: CapacityError when a sequence would outgrow its blocks; the lengths are as before then.
        """
        assert self._step is not None, "a steady step follows a prepared one"
        if step.changed_rows:
            self._tables.grow(step.changed_rows, step.changed_tables)
            self._steps_left = self._room(step.num_seqs) - self._num_advanced
        else:
            self._tables.changed = ()
        if self._steps_left < 1:
            self._refuse_advance(step.num_seqs)
        self._stream.launch(functools.partial(self._live.add_, 1))
        self._writes[:] = [TensorWrite("kv_lens", 0, step.num_seqs, in_place_add=True)]
        self._steps_left -= 1
        self._num_advanced += 1

    def _room(self, num_seqs: int) -> int:
        """Count the steps that every sequence can advance within its blocks."""
        return int((self._tables.room[:num_seqs] - self._kv_lens_host[:num_seqs]).min(initial=0x7FFFFFFF))

    def _settle(self) -> None:
        """Bring the host's side up to the steps that were only counted."""
        if self._step is None or not self._num_advanced:
            return
        params = self._step.kv_cache_params
        cached = tuple([count + self._num_advanced for count in params.num_cached_tokens_per_seq])
        params = dataclasses.replace(params, num_cached_tokens_per_seq=cached)
        tables = tuple(self._tables.held[: self._step.num_seqs])
        self._step = dataclasses.replace(self._step, kv_cache_params=params, block_tables=tables)
        self._kv_lens_host[: self._step.num_seqs] += self._num_advanced
        self._num_advanced = 0

    def _refuse_advance(self, num_seqs: int) -> None:
        self._settle()
        row = int(np.argmin(self._tables.room[:num_seqs] - self._kv_lens_host[:num_seqs]))
        message = (
            f"sequence {row} would have {int(self._kv_lens_host[row]) + 1} KV tokens in blocks that hold "
            f"{int(self._tables.room[row])}; reserve before the step"
        )
        raise CapacityError(message)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name every device tensor that a graph may read, the KV pool included."""
        names = ("kv_lens", "query_start", "block_table", "run_blocks", "seq_lens", "row_to_sequence")
        return {**{name: getattr(self, name) for name in names}, **self.storage.tensors()}

    def check(self) -> None:
        """Recompute the host mirrors from the step; compare addresses with the allocations."""
        for name, tensor in (("kv_lens", self.kv_lens), ("query_start", self.query_start), ("table", self._table)):
            assert tensor.data_ptr() == self._flat[name].data_ptr()
        step = self.step
        if step is None:
            return
        self._tables.check(step.block_tables)
        assert tuple(self._kv_lens_host[: step.num_seqs]) == step.kv_lens
        assert self._steps_left == self._room(step.num_seqs)

    def _copy(self, name: str, values: np.ndarray) -> None:
        ring = self._rings[name]
        self._stream.copy_(self._flat[name], ring.stage(values))
        ring.mark_copied(self._stream)
        self._writes.append(TensorWrite(name, 0, len(values)))

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

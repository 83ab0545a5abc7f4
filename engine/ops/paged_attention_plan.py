"""How the CPU attends one step's rows: decided once a step from device numbers, used by every layer.

Each live row is handled in one of three ways.
- *View*: a single row over neighbouring blocks, alone in its step or long: keys and values are views of the pool.
- *Gather*: the other single rows together: their blocks are copied side by side and attended in one call. Below
  ``LONG`` tokens the copy costs less than one matrix product a sequence would.
- *Chunk*: a sequence with several rows (a prompt, a chunk, a verification), on its own with a causal mask.

``plan_rows`` is a function of the bytes of the step's tensors, so a small cache makes it run once for all layers of
a step, without any state that could go stale.

Does not: touch keys or values. Source: own; measurements in LOG.md.
"""

import dataclasses
import functools
from typing import Final

import numpy as np
import torch

LONG: Final = 256  # tokens; two cores, torch 2.13: 8 rows over 50 tokens 0.13 ms gathered, 0.20 ms as views


@dataclasses.dataclass(frozen=True, slots=True)
class ViewRow:
    """One row over neighbouring blocks: KV tokens [first, first + length) of the pool."""

    row: int
    first: int
    length: int


@dataclasses.dataclass(frozen=True, slots=True)
class GatherRows:
    """Single rows attended together. mask [n, 1, tokens]; tail: gathered tokens that nobody wrote."""

    rows: torch.Tensor | None  # None: every row of the step
    count: int
    blocks: torch.Tensor
    mask: torch.Tensor
    tail: np.ndarray
    _masks: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict[int, torch.Tensor])

    def mask_of(self, num_kv_heads: int) -> torch.Tensor:
        """Repeat the mask for each key head, once for all layers. Shapes: [G * n, 1, tokens]."""
        if num_kv_heads not in self._masks:
            self._masks[num_kv_heads] = self.mask.repeat(num_kv_heads, 1, 1)
        return self._masks[num_kv_heads]


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkRows:
    """Rows [start, end) of one sequence. first is None when blocks must be gathered; mask is None when causal."""

    start: int
    end: int
    length: int
    first: int | None
    blocks: torch.Tensor
    mask: torch.Tensor | None


@dataclasses.dataclass(frozen=True, slots=True)
class RowPlan:
    """What to do with each row. tokens: where the live rows' keys go, counted in tokens of the pool.

    one_token: the place of the only live row, when there is one.
    """

    all_live: bool
    live: torch.Tensor
    tokens: torch.Tensor
    one_token: int | None
    views: tuple[ViewRow, ...]
    gather: GatherRows | None
    chunks: tuple[ChunkRows, ...]


@functools.lru_cache(maxsize=4)
def plan_rows(positions: bytes, step_table: bytes, shape: tuple[int, int, int], dtype: torch.dtype) -> RowPlan:
    """Decide for every row.

    positions and step_table: int32 as read from the device, the latter as ``paged_attention.py`` orders it.
    shape: sequences S, table width W, tokens per block I. dtype: of the masks.
    """
    S, W, size = shape
    place = np.frombuffer(positions, np.int32)
    lens, starts, table, _ = np.split(np.frombuffer(step_table, np.int32), np.cumsum((S, S + 1, S * (W + 1))))
    table = table.reshape(S, W + 1)  # the last column: leading blocks that follow one another
    runs, table = table[:, W], table[:, :W]
    rows = min(len(place), int(starts[-1]))
    owner = np.repeat(np.arange(len(lens)), np.diff(starts))[:rows]
    is_live = place[:rows] < lens[owner]
    live = np.flatnonzero(is_live)
    at, of = place[live], owner[live]
    tokens = table[of, at // size].astype(np.int64) * size + at % size
    singles: list[int] = []
    chunks: list[ChunkRows] = []
    for sequence, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        last = start + int(is_live[start:end].sum())  # live rows come first: positions ascend
        if last - start > 1:
            run_tokens = int(runs[sequence]) * size
            chunk = _chunk(place[start:last], table[sequence], run_tokens=run_tokens, size=size, dtype=dtype)
            chunks.append(dataclasses.replace(chunk, start=start, end=last))
        elif last > start:
            singles.append(start)
    views = tuple(
        ViewRow(row, int(table[owner[row], 0]) * size, int(place[row]) + 1)
        for row in singles
        if place[row] < runs[owner[row]] * size and (len(singles) == 1 or place[row] + 1 >= LONG)
    )
    seen = {view.row for view in views}
    others = [row for row in singles if row not in seen]
    return RowPlan(
        all_live=len(live) == len(place),
        live=torch.from_numpy(live),
        tokens=torch.from_numpy(tokens),
        one_token=int(tokens[0]) if len(tokens) == 1 else None,
        views=views,
        gather=_gather(others, place, table[owner[others]], size=size, dtype=dtype) if others else None,
        chunks=tuple(chunks),
    )


def _gather(rows: list[int], place: np.ndarray, table: np.ndarray, *, size: int, dtype: torch.dtype) -> GatherRows:
    lengths = place[rows] + 1
    width = -(-int(lengths.max()) // size)
    hidden = np.arange(width * size) >= lengths[:, None]  # [n, width * I]
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(torch.from_numpy(hidden), float("-inf"))
    return GatherRows(
        rows=None if len(rows) == len(place) else torch.tensor(rows),
        count=len(rows),
        blocks=torch.from_numpy(np.ascontiguousarray(table[:, :width]).reshape(-1)),
        mask=mask.view(len(rows), 1, -1),
        tail=np.flatnonzero(hidden),
    )


def _chunk(place: np.ndarray, table: np.ndarray, *, run_tokens: int, size: int, dtype: torch.dtype) -> ChunkRows:
    length = int(place.max()) + 1
    mask = None
    if len(place) != length or place[0] != 0:
        hidden = torch.from_numpy(np.arange(length) > place[:, None])
        mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf")).view(1, 1, *hidden.shape)
    return ChunkRows(
        start=0,
        end=len(place),
        length=length,
        first=int(table[0]) * size if length <= run_tokens else None,
        blocks=torch.from_numpy(table[: -(-length // size)].copy()),
        mask=mask,
    )

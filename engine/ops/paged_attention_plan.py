"""How the CPU attends one step's rows: decided once a step from device numbers, used by every layer.

Each live row is handled in one of four ways.
- *View*: a single row over neighbouring blocks, alone in its step or long: keys and values are views of the pool.
- *Gather*: the other single rows together: their blocks are copied side by side and attended in one call. Below
  ``LONG`` tokens the copy costs less than one matrix product a sequence would.
- *Few*: sequences with equally few rows (verified drafts) and few tokens, together like single rows.
- *Chunk*: a sequence with several rows (a prompt, a chunk), on its own with a causal mask. When it has few rows, the
  query heads of a key head become rows too, so that keys and values are read once for all of them.

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
FEW: Final = 16  # rows; one core, 8 x 5 rows of 135M over 60 tokens: 0.28 ms together, 0.84 ms one by one


@dataclasses.dataclass(frozen=True, slots=True)
class ViewRow:
    """One row over neighbouring blocks: KV tokens [first, first + length) of the pool."""

    row: int
    first: int
    length: int


@dataclasses.dataclass(frozen=True, slots=True)
class GatherRows:
    """Sequences of t rows each, attended together. mask [n, t, tokens]; tail: gathered tokens that nobody wrote."""

    rows: torch.Tensor | None  # None: every row of the step
    count: int
    blocks: torch.Tensor
    mask: torch.Tensor
    tail: np.ndarray
    _masks: dict[tuple[int, int], torch.Tensor] = dataclasses.field(default_factory=dict[tuple[int, int], torch.Tensor])

    @property
    def each(self) -> int:
        """Rows of a sequence."""
        return self.mask.shape[1]

    def mask_of(self, num_kv_heads: int, group: int = 1) -> torch.Tensor:
        """Repeat the mask for the heads, once for all layers. Shapes: [G * n, group * t, tokens].

        group: query heads of a key head, where each has mask rows of its own; one mask row serves them all.
        """
        key = num_kv_heads, group
        if key not in self._masks:
            self._masks[key] = self.mask.repeat(num_kv_heads, group, 1)
        return self._masks[key]


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkRows:
    """Rows [start, end) of one sequence. first is None when blocks must be gathered; mask is None when causal."""

    start: int
    end: int
    length: int
    first: int | None
    blocks: torch.Tensor
    mask: torch.Tensor | None
    _masks: dict[int, torch.Tensor] = dataclasses.field(default_factory=dict[int, torch.Tensor])

    def folded_mask(self, group: int) -> torch.Tensor | None:
        """Repeat the mask for ``group`` query heads as rows, where the rows are few; None where they are not."""
        if self.mask is None or self.end - self.start > FEW:
            return None
        if group not in self._masks:
            self._masks[group] = self.mask.repeat(1, 1, group, 1)
        return self._masks[group]


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
    few: tuple[GatherRows, ...]
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
    few: dict[int, list[int]] = {}  # first rows, by the number of rows
    chunks: list[ChunkRows] = []
    for sequence, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        last = start + int(is_live[start:end].sum())  # live rows come first: positions ascend
        if 1 < last - start <= FEW and place[last - 1] < LONG:
            few.setdefault(last - start, []).append(start)
        elif last - start > 1:
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
        few=tuple([_gather(of, place, table[owner[of]], each=t, size=size, dtype=dtype) for t, of in few.items()]),
        chunks=tuple(chunks),
    )


def _gather(
    first_rows: list[int], place: np.ndarray, table: np.ndarray, *, size: int, dtype: torch.dtype, each: int = 1
) -> GatherRows:
    """Lay out sequences of ``each`` rows, whose first rows and tables are given."""
    rows = np.array(first_rows)[:, None] + np.arange(each)
    at = place[rows]  # [n, t]
    width = -(-(int(at.max()) + 1) // size)
    token = np.arange(width * size)
    hidden = token > at[:, :, None]  # [n, t, width * I]
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(torch.from_numpy(hidden), float("-inf"))
    return GatherRows(
        rows=None if rows.size == len(place) else torch.from_numpy(rows.reshape(-1)),
        count=len(rows),
        blocks=torch.from_numpy(np.ascontiguousarray(table[:, :width]).reshape(-1)),
        mask=mask,
        tail=np.flatnonzero(hidden[:, -1]),
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

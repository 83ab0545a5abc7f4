"""How the CPU attends one step's rows: decided once a step from device numbers, used by every layer.

Each live row is handled in one of three ways.
- *View*: a single row over neighbouring blocks, alone in its step or long: keys and values are views of the pool.
- *Together*: the other single rows: their tokens are copied side by side and attended in one call. Below ``LONG``
  tokens the copy costs less than one matrix product a sequence would. Sequences with equally few rows (verified
  drafts) and few tokens likewise.
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
class RowsTogether:
    """Sequences of t rows each, attended together. tokens [n, T]: places in the pool; mask [n, t, T].

    A sequence with fewer than T tokens has its first one in the places behind them, which the mask hides: a stale NaN
    would get through a mask, but what a sequence wrote itself can only harm that sequence.
    """

    rows: torch.Tensor | None  # None: every row of the step
    tokens: np.ndarray
    mask: torch.Tensor
    _found: dict[tuple[int, int, int], tuple[torch.Tensor, torch.Tensor]] = dataclasses.field(
        default_factory=dict[tuple[int, int, int], tuple[torch.Tensor, torch.Tensor]]
    )

    def of_heads(self, num_kv_heads: int, tokens_per_head: int, group: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return places and mask for all heads, made once for all layers.

        group: query heads of a key head. Shapes: places in a layer's pool [2 * G * tokens_per_head, D], keys first,
        [2 * n * G * T]; mask [n * G, group * t, T], where one mask row serves the group if each sequence has one.
        """
        key = num_kv_heads, tokens_per_head, group
        if key not in self._found:
            heads = np.arange(2 * num_kv_heads).reshape(2, 1, -1, 1) * tokens_per_head
            places = self.tokens[:, None] + heads  # [2, n, G, T]
            mask = self.mask if self.mask.shape[1] == 1 else self.mask.repeat(1, group, 1)
            self._found[key] = torch.from_numpy(places.reshape(-1)), mask.repeat_interleave(num_kv_heads, 0)
        return self._found[key]


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
    tokens: np.ndarray
    one_token: int | None
    views: tuple[ViewRow, ...]
    together: tuple[RowsTogether, ...]
    chunks: tuple[ChunkRows, ...]

    @property
    def whole(self) -> RowsTogether | None:
        """The step itself, where its rows are of one sequence each and all attended together."""
        first = self.together[0] if self.together else None
        return first if first is not None and first.rows is None and first.mask.shape[1] == 1 else None


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
    together: dict[int, list[int]] = {1: []}  # first rows, by the number of rows
    chunks: list[ChunkRows] = []
    for sequence, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        last = start + int(is_live[start:end].sum())  # live rows come first: positions ascend
        if 1 < last - start <= FEW and place[last - 1] < LONG:
            together.setdefault(last - start, []).append(start)
        elif last - start > 1:
            run_tokens = int(runs[sequence]) * size
            chunk = _chunk(place[start:last], table[sequence], run_tokens=run_tokens, size=size, dtype=dtype)
            chunks.append(dataclasses.replace(chunk, start=start, end=last))
        elif last > start:
            together[1].append(start)
    views = tuple(
        ViewRow(row, int(table[owner[row], 0]) * size, int(place[row]) + 1)
        for row in together[1]
        if place[row] < runs[owner[row]] * size and (len(together[1]) == 1 or place[row] + 1 >= LONG)
    )
    seen = {view.row for view in views}
    together[1] = [row for row in together[1] if row not in seen]
    return RowPlan(
        all_live=len(live) == len(place),
        live=torch.from_numpy(live),
        tokens=tokens,
        one_token=int(tokens[0]) if len(tokens) == 1 else None,
        views=views,
        together=tuple(
            [_together(of, t, place, table[owner[of]], size=size, dtype=dtype) for t, of in together.items() if of]
        ),
        chunks=tuple(chunks),
    )


def _together(
    first_rows: list[int], each: int, place: np.ndarray, table: np.ndarray, *, size: int, dtype: torch.dtype
) -> RowsTogether:
    """Lay out sequences of ``each`` rows, whose first rows and tables are given."""
    rows = np.array(first_rows)[:, None] + np.arange(each)
    at = place[rows]  # [n, t]
    token = np.arange(int(at.max()) + 1)
    hidden = token > at[:, :, None]  # [n, t, T]
    own = np.where(hidden[:, -1], 0, token)
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(torch.from_numpy(hidden), float("-inf"))
    return RowsTogether(
        rows=None if rows.size == len(place) else torch.from_numpy(rows.reshape(-1)),
        tokens=np.take_along_axis(table, own // size, axis=1).astype(np.int64) * size + own % size,
        mask=mask,
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

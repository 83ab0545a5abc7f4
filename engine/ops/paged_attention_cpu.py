"""The CPU kernel of ``stepscope::paged_attention_``: host loops over sequences around a few matrix products.

Rows of a step are handled in three ways: a live single row over neighbouring blocks reads keys and values as views;
live single rows over scattered blocks are gathered together and attended in one call; a sequence with several rows
(a prompt, a chunk, a verification) is attended on its own with a causal mask. Rows that are not live give zeros.

Does not: check shapes (the metadata did), keep anything between calls.
Source: own; measurements in LOG.md.
"""

import dataclasses
from typing import Any

import numpy as np
import torch

_flash: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


@dataclasses.dataclass(slots=True)
class _Pool:
    """One layer's blocks seen as tokens, and the tables. keys and values [G, (J + 1) * I, D]."""

    keys: torch.Tensor
    values: torch.Tensor
    scratch: torch.Tensor
    block_table: torch.Tensor
    run_blocks: list[int]
    tokens_per_block: int


def attend_rows(
    out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    positions: torch.Tensor,
    *,
    key_blocks: torch.Tensor,
    value_blocks: torch.Tensor,
    scratch: torch.Tensor,
    kv_lens: torch.Tensor,
    block_table: torch.Tensor,
    run_blocks: torch.Tensor,
    row_to_sequence: torch.Tensor,
    query_start: torch.Tensor,
) -> None:
    """Write keys and values of the live rows, then attend each. See ``paged_attention.py`` for the contract."""
    G, _, size, D = key_blocks.shape
    pool = _Pool(
        keys=key_blocks.view(G, -1, D),
        values=value_blocks.view(G, -1, D),
        scratch=scratch,
        block_table=block_table,
        run_blocks=run_blocks.tolist(),
        tokens_per_block=size,
    )
    rows = query.shape[0]
    place, starts, lens = positions.tolist(), query_start.tolist(), kv_lens.tolist()
    owner = row_to_sequence.tolist()
    live = [n for n in range(min(rows, starts[-1])) if place[n] < lens[owner[n]]]
    if len(live) < rows:
        out.zero_()
    if not live:
        return
    _write(pool, key, value, live=live, place=place, owner=owner)
    scattered: list[int] = []
    whole = len(live) == rows
    for sequence, (start, end) in enumerate(zip(starts, starts[1:], strict=False)):
        if end - start == 1:
            if start < rows and place[start] < lens[sequence]:
                if place[start] < pool.run_blocks[sequence] * size:
                    _attend_view(out, query, pool, sequence, start, place[start] + 1)
                else:
                    scattered.append(start)
        elif end > start and start < rows:
            inside = [n for n in range(start, min(end, rows)) if whole or place[n] < lens[sequence]]
            if inside:
                _attend_many(out, query, pool, sequence, inside, place)
    if scattered:
        _attend_scattered(out, query, pool, scattered, place=place, owner=owner)


def _write(
    pool: _Pool, key: torch.Tensor, value: torch.Tensor, *, live: list[int], place: list[int], owner: list[int]
) -> None:
    size = pool.tokens_per_block
    table = pool.block_table.numpy()
    if len(live) == key.shape[0] == 1:
        token = int(table[owner[0], place[0] // size]) * size + place[0] % size
        pool.keys[:, token] = key[0]
        pool.values[:, token] = value[0]
        return
    rows = np.array(live)
    position = np.array(place)[rows]
    tokens = table[np.array(owner)[rows], position // size].astype(np.int64) * size + position % size
    index = torch.from_numpy(tokens)
    if len(live) < key.shape[0]:
        chosen = torch.from_numpy(rows)
        key, value = key[chosen], value[chosen]
    pool.keys.index_copy_(1, index, key.transpose(0, 1))
    pool.values.index_copy_(1, index, value.transpose(0, 1))


def _attend_view(out: torch.Tensor, query: torch.Tensor, pool: _Pool, sequence: int, row: int, length: int) -> None:
    """One row over neighbouring blocks: keys and values are views of the pool."""
    G, _, D = pool.keys.shape
    first = int(pool.block_table[sequence, 0]) * pool.tokens_per_block
    keys = pool.keys[:, first : first + length]
    values = pool.values[:, first : first + length]
    grouped = query[row].view(G, -1, D)
    weights = torch.bmm(grouped * D**-0.5, keys.transpose(1, 2)).softmax(-1)
    torch.bmm(weights, values, out=out[row].view(G, -1, D))


def _attend_scattered(
    out: torch.Tensor, query: torch.Tensor, pool: _Pool, rows: list[int], *, place: list[int], owner: list[int]
) -> None:
    """Single rows over scattered blocks: gather the blocks of all of them, then attend in one call."""
    G, _, D = pool.keys.shape
    size, n = pool.tokens_per_block, len(rows)
    lengths = [place[row] + 1 for row in rows]
    width = -(-max(lengths) // size)
    table = pool.block_table[torch.tensor([owner[row] for row in rows]), :width].reshape(-1)
    keys, values = _gather(pool, table)
    keys, values = keys.view(G, n, width * size, D), values.view(G, n, width * size, D)
    mask = torch.zeros(n, 1, 1, width * size, dtype=query.dtype)
    for index, length in enumerate(lengths):
        mask[index, :, :, length:] = float("-inf")
        values[:, index, length:] = 0.0  # a masked weight is 0, and 0 times a stale NaN would be NaN
        keys[:, index, length:] = 0.0
    chosen = torch.tensor(rows)
    grouped = query[chosen].view(n, G, -1, D)
    result = _flash(grouped, keys.transpose(0, 1), values.transpose(0, 1), attn_mask=mask)[0]
    out[chosen] = result.reshape(n, -1, D)


def _attend_many(
    out: torch.Tensor, query: torch.Tensor, pool: _Pool, sequence: int, rows: list[int], place: list[int]
) -> None:
    """Several rows of one sequence: row n sees positions 0 to its own."""
    G, _, D = pool.keys.shape
    size = pool.tokens_per_block
    positions = [place[row] for row in rows]
    length = max(positions) + 1
    if length <= pool.run_blocks[sequence] * size:
        first = int(pool.block_table[sequence, 0]) * size
        keys, values = pool.keys[:, first : first + length], pool.values[:, first : first + length]
    else:
        keys, values = _gather(pool, pool.block_table[sequence, : -(-length // size)])
        keys, values = keys.view(G, -1, D)[:, :length], values.view(G, -1, D)[:, :length]
    span = slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] + 1 == len(rows) else torch.tensor(rows)
    grouped = query[span].view(len(rows), G, -1, D).permute(1, 2, 0, 3)  # [G, H/G, t, D]
    spread = (G, grouped.shape[1], length, D)
    keys, values = keys.unsqueeze(1).expand(spread), values.unsqueeze(1).expand(spread)
    if positions == list(range(length)):
        result = _flash(grouped, keys, values, is_causal=True)[0]
    else:
        hidden = torch.arange(length).unsqueeze(0) > torch.tensor(positions).unsqueeze(1)
        mask = torch.zeros(len(rows), length, dtype=query.dtype).masked_fill_(hidden, float("-inf"))
        result = _flash(grouped, keys, values, attn_mask=mask.view(1, 1, len(rows), length))[0]
    out[span] = result.permute(2, 0, 1, 3).reshape(len(rows), -1, D)


def _gather(pool: _Pool, blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy blocks into the scratch: keys and values [G, n, I, D]. Valid: until the next gather."""
    G, _, D = pool.keys.shape
    shape = (G, blocks.shape[0], pool.tokens_per_block, D)
    cells = G * blocks.shape[0] * pool.tokens_per_block * D
    keys, values = pool.scratch[0, :cells].view(shape), pool.scratch[1, :cells].view(shape)
    torch.index_select(pool.keys.view(G, -1, pool.tokens_per_block, D), 1, blocks, out=keys)
    torch.index_select(pool.values.view(G, -1, pool.tokens_per_block, D), 1, blocks, out=values)
    return keys, values

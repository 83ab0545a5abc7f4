"""The CPU kernel of ``stepscope::paged_attention_``: a few matrix products, as ``paged_attention_plan.py`` lays out.

The query heads that share a key head are rows of one small product, so keys and values are read once. Rows that are
not live give zeros.

Does not: check shapes (the metadata did) or keep anything between calls.
Source: own; measurements in LOG.md.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

import torch

from engine.ops.paged_attention_plan import ChunkRows, RowsTogether, ViewRow, plan_rows

_flash: Final[Any] = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu").default  # noqa: B009


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
    step_table: torch.Tensor,
    kv_lens: torch.Tensor,
    block_table: torch.Tensor,
    row_to_sequence: torch.Tensor,
    query_start: torch.Tensor,
) -> None:
    """Write keys and values of the live rows, then attend each. See ``paged_attention.py`` for the contract."""
    shape = (*block_table.shape, key_blocks.shape[2])
    plan = plan_rows(positions.numpy().tobytes(), step_table.numpy().tobytes(), shape, query.dtype)
    pool = _both_sides(key_blocks, value_blocks)
    if not plan.all_live:
        out.zero_()
        key, value = key[plan.live], value[plan.live]
    if plan.one_token is not None:
        for side, rows in zip(pool, (key, value), strict=True):
            side.select(1, plan.one_token).copy_(rows[0])
    elif pool.dtype is torch.float32:  # two thirds of index_copy's time
        for side, rows in zip(pool.numpy(), (key, value), strict=True):
            side[:, plan.tokens] = rows.numpy().swapaxes(0, 1)
    else:
        for side, rows in zip(pool, (key, value), strict=True):
            side.index_copy_(1, torch.from_numpy(plan.tokens), rows.transpose(0, 1))
    for view in plan.views:
        _attend_view(out, query, pool, view)
    for rows in plan.together:
        _attend_together(out, query, pool, scratch, rows)
    for chunk in plan.chunks:
        _attend_chunk(out, query, (key_blocks, value_blocks), scratch, chunk)


def _attend_view(out: torch.Tensor, query: torch.Tensor, pool: torch.Tensor, view: ViewRow) -> None:
    _, G, tokens, D = pool.shape
    shape, strides, first = (1, G, view.length, D), (0, tokens * D, D, 1), view.first * D
    keys, values = (side.as_strided(shape, strides, side.storage_offset() + first) for side in pool)
    attended = _flash(query[view.row].view(1, G, -1, D), keys, values)[0]
    out[view.row].view(1, G, -1, D).copy_(attended)


def fix_attention(
    out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    positions: torch.Tensor,
    **fixed: Any,
) -> Callable[[], object]:
    """Return a call of the kernel on these tensors, quicker for the steps whose rows are all attended together."""
    attend = functools.partial(attend_rows, out, query, key, value, positions, **fixed)
    if query.dtype is not torch.float32:
        return attend
    pool, scratch = _both_sides(fixed["key_blocks"], fixed["value_blocks"]), fixed["scratch"]
    (N, H, D), G = query.shape, pool.shape[1]
    shape = (*fixed["block_table"].shape, fixed["key_blocks"].shape[2])
    place, table, (key_cells, value_cells) = positions.numpy(), fixed["step_table"].numpy(), pool.numpy()
    keys, values = key.numpy().swapaxes(0, 1), value.numpy().swapaxes(0, 1)
    grouped, flat = query.new_empty(N, H, D), pool.view(-1, D)
    queries, attended = grouped.view(N * G, -1, D), out.view(N * G, -1, D)

    def run() -> None:
        plan = plan_rows(place.tobytes(), table.tobytes(), shape, torch.float32)
        rows = plan.whole
        if rows is None:
            attend()
            return
        key_cells[:, plan.tokens] = keys
        value_cells[:, plan.tokens] = values
        grouped.copy_(query)
        weights, seen = _weigh(queries, flat, scratch, rows, num_kv_heads=G)
        torch.bmm(weights, seen, out=attended)

    return run


def _attend_together(
    out: torch.Tensor, query: torch.Tensor, pool: torch.Tensor, scratch: torch.Tensor, rows: RowsTogether
) -> None:
    """Attend t rows of each of n sequences: they and the query heads of a key head are rows of one product together."""
    if rows.rows is not None:
        query = query[rows.rows]
    _, G, _, D = pool.shape
    (n, t, _), group = rows.mask.shape, query.shape[1] // G
    grouped = query.reshape(n, t, G, group, D).permute(0, 2, 3, 1, 4).reshape(n * G, group * t, D)
    weights, values = _weigh(grouped, pool.view(-1, D), scratch, rows, num_kv_heads=G)
    attended = torch.bmm(weights, values).view(n, G, group, t, D).permute(0, 3, 1, 2, 4)
    out[... if rows.rows is None else rows.rows] = attended.reshape(n * t, -1, D)


def _weigh(
    grouped: torch.Tensor, pool: torch.Tensor, scratch: torch.Tensor, rows: RowsTogether, *, num_kv_heads: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy the tokens of all sequences side by side, and weigh them.

    Shapes: grouped [n * G, group * t, D], pool [2 * G * tokens, D] -> weights [n * G, group * t, T], values
    [n * G, T, D]. Valid: the values until the scratch is written again.
    """
    (batch, num_queries, D), (_, t, T) = grouped.shape, rows.mask.shape
    places, mask = rows.of_heads(num_kv_heads, pool.shape[0] // (2 * num_kv_heads), num_queries // t)
    both = scratch[: places.shape[0] * D].view(-1, D)
    torch.index_select(pool, 0, places, out=both)
    keys, values = both.view(2, batch, T, D).unbind(0)
    scores = torch.baddbmm(mask, grouped, keys.transpose(1, 2), alpha=D**-0.5)
    return torch.softmax(scores, -1), values


def _both_sides(key_blocks: torch.Tensor, value_blocks: torch.Tensor) -> torch.Tensor:
    """View a layer's keys, and the values that lie behind them, as one tensor. Shapes: -> [2, G, tokens, D]."""
    G, num_blocks, size, D = key_blocks.shape
    assert value_blocks.data_ptr() == key_blocks.data_ptr() + key_blocks.nbytes
    tokens = num_blocks * size
    return key_blocks.as_strided((2, G, tokens, D), (G * tokens * D, tokens * D, D, 1))


def _attend_chunk(
    out: torch.Tensor,
    query: torch.Tensor,
    blocks: tuple[torch.Tensor, torch.Tensor],
    scratch: torch.Tensor,
    chunk: ChunkRows,
) -> None:
    G, _, _, D = blocks[0].shape
    if chunk.first is None:
        keys, values = _gather(blocks, scratch, chunk.blocks).view(2, G, -1, D)[:, :, : chunk.length].unbind(0)
    else:
        stretch = slice(chunk.first, chunk.first + chunk.length)
        keys, values = (side.view(G, -1, D)[:, stretch] for side in blocks)
    rows = slice(chunk.start, chunk.end)
    group, folded_mask = query.shape[1] // G, chunk.folded_mask(query.shape[1] // G)
    if folded_mask is not None:
        of_head = query[rows].unflatten(1, (G, group)).permute(1, 2, 0, 3).reshape(1, G, -1, D)
        attended = _flash(of_head, keys.unsqueeze(0), values.unsqueeze(0), attn_mask=folded_mask)[0]
        out[rows].unflatten(1, (G, group)).copy_(attended.view(G, group, -1, D).permute(2, 0, 1, 3))
        return
    grouped = query[rows].unflatten(1, (G, -1)).permute(1, 2, 0, 3)  # [G, H/G, t, D]
    spread = (G, grouped.shape[1], chunk.length, D)
    keys, values = keys.unsqueeze(1).expand(spread), values.unsqueeze(1).expand(spread)
    attended = _flash(grouped, keys, values, is_causal=chunk.mask is None, attn_mask=chunk.mask)[0]
    out[rows].unflatten(1, (G, -1)).copy_(attended.permute(2, 0, 1, 3))


def _gather(blocks: tuple[torch.Tensor, torch.Tensor], scratch: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Copy blocks into the scratch: [2, G, n, I, D], keys then values. Valid: until the next gather."""
    G, _, size, D = blocks[0].shape
    both = scratch[: 2 * G * ids.shape[0] * size * D].view(2, G, ids.shape[0], size, D)
    torch.index_select(blocks[0], 1, ids, out=both[0])
    torch.index_select(blocks[1], 1, ids, out=both[1])
    return both

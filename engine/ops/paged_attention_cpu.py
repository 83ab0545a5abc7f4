"""The CPU kernel of ``stepscope::paged_attention_``: a few matrix products, as ``paged_attention_plan.py`` lays out.

The query heads that share a key head are rows of one small product, so keys and values are read once. Rows that are
not live give zeros. Tokens that a gather copied and nobody wrote are zeroed: a masked weight is 0, and 0 times a
stale NaN would be NaN.

Does not: check shapes (the metadata did) or keep anything between calls.
Source: own; measurements in LOG.md.
"""

from typing import Any, Final

import torch

from engine.ops.paged_attention_plan import ChunkRows, GatherRows, ViewRow, plan_rows

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
    G, _, size, D = key_blocks.shape
    plan = plan_rows(positions.numpy().tobytes(), step_table.numpy().tobytes(), (*block_table.shape, size), query.dtype)
    pool = (key_blocks.view(G, -1, D), value_blocks.view(G, -1, D))
    if not plan.all_live:
        out.zero_()
        key, value = key[plan.live], value[plan.live]
    for side, rows in zip(pool, (key, value), strict=True):
        if plan.one_token is None and side.dtype is torch.float32:  # two thirds of index_copy's time
            side.numpy()[:, plan.tokens.numpy()] = rows.numpy().swapaxes(0, 1)
        elif plan.one_token is None:
            side.index_copy_(1, plan.tokens, rows.transpose(0, 1))
        else:
            side.select(1, plan.one_token).copy_(rows[0])
    for view in plan.views:
        _attend_view(out, query, pool, view)
    if plan.gather is not None:
        _attend_gathered(out, query, (key_blocks, value_blocks), scratch, plan.gather)
    for few in plan.few:
        _attend_few(out, query, (key_blocks, value_blocks), scratch, few)
    for chunk in plan.chunks:
        _attend_chunk(out, query, (key_blocks, value_blocks), scratch, chunk)


def _attend_view(
    out: torch.Tensor, query: torch.Tensor, pool: tuple[torch.Tensor, torch.Tensor], view: ViewRow
) -> None:
    G, tokens, D = pool[0].shape
    shape, strides, first = (1, G, view.length, D), (0, tokens * D, D, 1), view.first * D
    keys, values = (side.as_strided(shape, strides, side.storage_offset() + first) for side in pool)
    attended = _flash(query[view.row].view(1, G, -1, D), keys, values)[0]
    out[view.row].view(1, G, -1, D).copy_(attended)


def _attend_gathered(
    out: torch.Tensor,
    query: torch.Tensor,
    blocks: tuple[torch.Tensor, torch.Tensor],
    scratch: torch.Tensor,
    rows: GatherRows,
) -> None:
    if rows.rows is not None:
        query = query[rows.rows]
    G, D = blocks[0].shape[0], blocks[0].shape[3]
    both = _gather(blocks, scratch, rows.blocks)  # [2, G, n * width, I, D]
    tokens = both.view(2, G, -1, D)
    if rows.tail.size:
        _words(tokens)[:, :, rows.tail] = 0
    keys, values = both.view(2, G * rows.count, -1, D).unbind(0)  # [G * n, width * I, D]
    grouped = query.view(rows.count, G, -1, D).transpose(0, 1).reshape(G * rows.count, -1, D)
    scores = torch.baddbmm(rows.mask_of(G), grouped, keys.transpose(1, 2), alpha=D**-0.5)
    attended = torch.bmm(torch.softmax(scores, -1), values).view(G, rows.count, -1, D).transpose(0, 1)
    if rows.rows is None:
        out.view(rows.count, G, -1, D).copy_(attended)
    else:
        out[rows.rows] = attended.reshape(rows.count, -1, D)


def _attend_few(
    out: torch.Tensor,
    query: torch.Tensor,
    blocks: tuple[torch.Tensor, torch.Tensor],
    scratch: torch.Tensor,
    rows: GatherRows,
) -> None:
    """As ``_attend_gathered``, with t rows a sequence: they and the query heads of a key head are rows together."""
    if rows.rows is not None:
        query = query[rows.rows]
    (G, _, _, D), n, t = blocks[0].shape, rows.count, rows.each
    group = query.shape[1] // G
    tokens = _gather(blocks, scratch, rows.blocks).view(2, G, -1, D)
    if rows.tail.size:
        _words(tokens)[:, :, rows.tail] = 0
    keys, values = tokens.view(2, G * n, -1, D).unbind(0)
    grouped = query.view(n, t, G, group, D).permute(2, 0, 3, 1, 4).reshape(G * n, group * t, D)
    scores = torch.baddbmm(rows.mask_of(G, group), grouped, keys.transpose(1, 2), alpha=D**-0.5)
    attended = torch.bmm(torch.softmax(scores, -1), values).view(G, n, group, t, D).permute(1, 3, 0, 2, 4)
    if rows.rows is None:
        out.view(n, t, G, group, D).copy_(attended)
    else:
        out[rows.rows] = attended.reshape(n * t, -1, D)


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


def _words(tensor: torch.Tensor) -> Any:
    """View the tensor as a writable numpy array; two-byte floats, which numpy lacks, as integers."""
    return (tensor if tensor.dtype is torch.float32 else tensor.view(torch.int16)).numpy()

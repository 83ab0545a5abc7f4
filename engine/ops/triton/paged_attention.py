"""The CUDA kernels of ``stepscope::paged_attention_``: one that writes keys and values, one that attends.

Both read positions, lengths, tables and row ranges on the device, and their grids depend on tensor shapes only, so a
captured launch serves every length.

*Write*: one program a row and key head. A row that is not live (past the last sequence, or at a position that its
sequence does not have) writes nothing; a row past the last sequence gets zeros as its output here, since no
attention tile covers it.

*Attend*: one program a tile of BQ rows of one sequence and a key head, decode (BQ = 1) and prefill alike. The query
heads of the key head are rows of the tile, so keys and values are read once for all of them. Softmax is online over
tiles of BN tokens. A tile finds its sequence by bisecting query_start: sequence s owns the tiles from
query_start[s] // BQ + s on, which leaves room for every rounding up.

Does not: split one sequence's keys over several programs; that pays for few sequences with very long contexts.
Source: FlashAttention's online softmax; the tile-to-sequence bisection is the one of vLLM's unified Triton kernel.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers, sizes and strides one by one
import functools

import torch
import triton
import triton.language as tl

from engine.ops.paged_attention import LIBRARY


@triton.jit
def write_rows(
    out_ptr,
    key_ptr,
    value_ptr,
    position_ptr,
    key_blocks_ptr,
    value_blocks_ptr,
    kv_lens_ptr,
    table_ptr,
    row_to_sequence_ptr,
    query_start_ptr,
    num_seqs,
    out_stride_n,
    out_stride_h,
    key_stride_n,
    key_stride_g,
    value_stride_n,
    value_stride_g,
    kv_stride_g,
    kv_stride_j,
    kv_stride_i,
    table_stride,
    SIZE: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    R: tl.constexpr,
):
    """Write key and value of row ``program_id(0)`` for key head ``program_id(1)``."""
    n = tl.program_id(0)
    g = tl.program_id(1)
    d = tl.arange(0, DP)
    covered = n < tl.load(query_start_ptr + num_seqs)
    sequence = tl.load(row_to_sequence_ptr + n)
    position = tl.load(position_ptr + n)
    live = covered & (position < tl.load(kv_lens_ptr + sequence))
    block = tl.load(table_ptr + sequence * table_stride + position // SIZE, mask=live, other=0).to(tl.int64)
    place = g * kv_stride_g + block * kv_stride_j + (position % SIZE) * kv_stride_i + d
    inside = d < D
    key = tl.load(key_ptr + n * key_stride_n + g * key_stride_g + d, mask=inside, other=0.0)
    value = tl.load(value_ptr + n * value_stride_n + g * value_stride_g + d, mask=inside, other=0.0)
    tl.store(key_blocks_ptr + place, key, mask=inside & live)
    tl.store(value_blocks_ptr + place, value, mask=inside & live)
    zeros = tl.zeros([DP], dtype=key.dtype)
    for r in range(R):
        head = out_ptr + n * out_stride_n + (g * R + r) * out_stride_h + d
        tl.store(head, zeros, mask=inside & (n >= tl.load(query_start_ptr + num_seqs)))


@triton.jit
def attend_tiles(
    out_ptr,
    query_ptr,
    position_ptr,
    key_blocks_ptr,
    value_blocks_ptr,
    kv_lens_ptr,
    table_ptr,
    query_start_ptr,
    scale,
    num_seqs,
    num_rows,
    out_stride_n,
    out_stride_h,
    query_stride_n,
    query_stride_h,
    kv_stride_g,
    kv_stride_j,
    kv_stride_i,
    table_stride,
    SIZE: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    R: tl.constexpr,
    BQ: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Attend one tile of rows for one key head. BM: rows of the tile times heads, padded; DP: head size, padded."""
    tile = tl.program_id(0)
    g = tl.program_id(1)
    low = 0
    high = num_seqs
    while low < high:
        middle = (low + high) // 2
        if tl.load(query_start_ptr + middle) // BQ + middle <= tile:
            low = middle + 1
        else:
            high = middle
    sequence = low - 1
    begin = tl.load(query_start_ptr + sequence)
    end = tl.minimum(tl.load(query_start_ptr + sequence + 1), num_rows)
    first_row = begin + (tile - (begin // BQ + sequence)) * BQ
    if first_row >= end:
        return
    m = tl.arange(0, BM)
    d = tl.arange(0, DP)
    row = first_row + m // R
    head = g * R + m % R
    inside = (m < BQ * R) & (row < end)
    in_head = d < D
    position = tl.load(position_ptr + row, mask=inside, other=-1)
    position = tl.where(position < tl.load(kv_lens_ptr + sequence), position, -1)  # not live: sees nothing
    last = tl.max(position, axis=0)
    query_at = query_ptr + row[:, None] * query_stride_n + head[:, None] * query_stride_h + d[None, :]
    query = tl.load(query_at, mask=inside[:, None] & in_head[None, :], other=0.0)
    best = tl.full([BM], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, DP], dtype=tl.float32)
    for start in range(0, last + 1, BN):
        token = start + tl.arange(0, BN)
        seen = token <= last
        block = tl.load(table_ptr + sequence * table_stride + token // SIZE, mask=seen, other=0).to(tl.int64)
        place = g * kv_stride_g + block * kv_stride_j + (token % SIZE) * kv_stride_i
        key = tl.load(key_blocks_ptr + place[None, :] + d[:, None], mask=seen[None, :] & in_head[:, None], other=0.0)
        scores = tl.dot(query, key, input_precision="ieee") * scale
        scores = tl.where(token[None, :] <= position[:, None], scores, float("-inf"))
        peak = tl.maximum(best, tl.max(scores, axis=1))
        shift = tl.where(peak == float("-inf"), 0.0, peak)  # a row that saw nothing yet: exp(-inf), not NaN
        weights = tl.exp(scores - shift[:, None])
        decay = tl.exp(best - shift)
        value = tl.load(
            value_blocks_ptr + place[:, None] + d[None, :], mask=seen[:, None] & in_head[None, :], other=0.0
        )
        total = total * decay + tl.sum(weights, axis=1)
        acc = acc * decay[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        best = peak
    result = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    out_at = out_ptr + row[:, None] * out_stride_n + head[:, None] * out_stride_h + d[None, :]
    tl.store(out_at, result.to(out_ptr.dtype.element_ty), mask=inside[:, None] & in_head[None, :])


def attend_cuda(
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
    """Launch both kernels. Head sizes need unit stride in out, query, key and value."""
    rows, H, D = query.shape
    G, _, size, _ = key_blocks.shape
    S, group = kv_lens.shape[0], H // G
    if rows == 0:
        return
    padded = max(16, triton.next_power_of_2(D))
    shared = {"SIZE": size, "D": D, "DP": padded, "R": group}
    pool = (key_blocks.stride(0), key_blocks.stride(1), key_blocks.stride(2), block_table.stride(0))
    block_q = 1 if rows <= S else 16
    with torch.cuda.device(query.device):
        write_rows[(rows, G)](  # pyright: ignore[reportIndexIssue]
            out, key, value, positions, key_blocks, value_blocks, kv_lens, block_table, row_to_sequence, query_start,
            S, out.stride(0), out.stride(1), key.stride(0), key.stride(1), value.stride(0), value.stride(1),
            *pool, **shared, num_warps=1,
        )  # fmt: skip
        attend_tiles[(rows // block_q + S, G)](  # pyright: ignore[reportIndexIssue]
            out, query, positions, key_blocks, value_blocks, kv_lens, block_table, query_start, D**-0.5, S, rows,
            out.stride(0), out.stride(1), query.stride(0), query.stride(1), *pool, **shared, BQ=block_q,
            BM=max(16, triton.next_power_of_2(block_q * group)), BN=32 if query.dtype is torch.float32 else 64,
            num_warps=4, num_stages=2,
        )  # fmt: skip


@functools.cache
def register() -> None:
    """Make these kernels the op's CUDA implementation; once a process."""
    LIBRARY.impl("paged_attention_", attend_cuda, "CUDA")

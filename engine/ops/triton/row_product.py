"""One row times a weight on CUDA: y = norm(x) W^T (+ bias) (+ residual), or silu(gate) * up, in one launch.

A product of one row reads every weight once and does almost nothing with it, so all that counts is how many bytes are
in flight and how soon the first of them are asked for. A program owns tiles of BN outputs, strided over the grid, and
loads the next piece of weight before it multiplies the one in hand. The first piece is asked for before the kernel
waits for the one that wrote x (``launch.py``), since weights never change. The norm is part of the prologue: every
program reads the whole row anyway.

Does not: serve several rows (``tile_product.py``). Source: own; measurements in LOG.md.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and sizes one by one
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from engine.ops.triton.launch import num_multiprocessors, overlap


@triton.jit
def _load_tile(
    weight_ptr, tile, chunk, num_tiles, OUT: tl.constexpr, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Load BN rows of weight, BK columns of each; nothing for a tile or a column that does not exist."""
    j = tl.arange(0, BN)
    k = chunk * BK + tl.arange(0, BK)
    at = weight_ptr + tile.to(tl.int64) * (BN * K)
    inside = (tile < num_tiles) & (tile * BN + j < OUT)[:, None] & (k < K)[None, :]
    return tl.load(at + j[:, None] * K + k[None, :], mask=inside, other=0.0)


@triton.jit
def _load_scaled(x_ptr, norm_ptr, scale, chunk, K: tl.constexpr, BK: tl.constexpr, HAS_NORM: tl.constexpr):
    """Load BK columns of the row in float32, normed when there is a norm."""
    k = chunk * BK + tl.arange(0, BK)
    x = tl.load(x_ptr + k, mask=k < K, other=0.0).to(tl.float32)
    if HAS_NORM:
        x = x * scale * tl.load(norm_ptr + k, mask=k < K, other=0.0).to(tl.float32)
    return x


@triton.jit
def multiply_row(
    out_ptr,
    x_ptr,
    norm_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    eps,
    OUT: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    IS_GATED: tl.constexpr,
    PDL: tl.constexpr,
):
    """Multiply. OUT: outputs; a gated weight has 2 OUT rows, gates first. KP: K, padded to a power of two."""
    NUM_K: tl.constexpr = (K + BK - 1) // BK
    num_tiles = (OUT + BN - 1) // BN
    step = tl.num_programs(0)
    first = tl.program_id(0)
    up_ptr = weight_ptr + OUT * K
    w = _load_tile(weight_ptr, first, 0, num_tiles, OUT, K, BN, BK)
    u = w
    if IS_GATED:
        u = _load_tile(up_ptr, first, 0, num_tiles, OUT, K, BN, BK)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    scale = 1.0
    if HAS_NORM:
        k = tl.arange(0, KP)
        row = tl.load(x_ptr + k, mask=k < K, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(row * row, axis=0) / K + eps)
    x = _load_scaled(x_ptr, norm_ptr, scale, 0, K, BK, HAS_NORM)
    for tile in range(first, num_tiles, step):
        acc = tl.zeros([BN, BK], dtype=tl.float32)
        acc_up = tl.zeros([BN, BK], dtype=tl.float32)
        for chunk in range(NUM_K):
            is_last = chunk + 1 == NUM_K
            next_tile = tl.where(is_last, tile + step, tile)
            next_chunk = tl.where(is_last, 0, chunk + 1)
            w_next = _load_tile(weight_ptr, next_tile, next_chunk, num_tiles, OUT, K, BN, BK)
            u_next = w_next
            if IS_GATED:
                u_next = _load_tile(up_ptr, next_tile, next_chunk, num_tiles, OUT, K, BN, BK)
            if NUM_K > 1:
                x = _load_scaled(x_ptr, norm_ptr, scale, chunk, K, BK, HAS_NORM)
            acc += w.to(tl.float32) * x[None, :]
            w = w_next
            if IS_GATED:
                acc_up += u.to(tl.float32) * x[None, :]
                u = u_next
        j = tile * BN + tl.arange(0, BN)
        y = tl.sum(acc, axis=1)
        if IS_GATED:
            y = y * tl.sigmoid(y) * tl.sum(acc_up, axis=1)
        if HAS_BIAS:
            y += tl.load(bias_ptr + j, mask=j < OUT, other=0.0).to(tl.float32)
        if HAS_RESIDUAL:
            y += tl.load(residual_ptr + j, mask=j < OUT, other=0.0).to(tl.float32)
        tl.store(out_ptr + j, y.to(out_ptr.dtype.element_ty), mask=j < OUT)


def _tiling(outputs: int, K: int, itemsize: int, *, is_gated: bool) -> tuple[int, int, int, int | None]:
    """Choose (BN, BK, warps, programs a multiprocessor or None for one a tile): a fixed table, measured once."""
    narrow = 2 if itemsize > 2 else 1  # a tile is so many bytes, whatever the type
    if K <= 2048:
        padded = triton.next_power_of_2(K)
        if outputs >= 16384:
            return 8 // narrow, padded, 4, 4
        return (4 if K <= 1024 else 2) // narrow, padded, 4, None
    if K > 4096:
        return 4 // narrow, 2048, 4, 3
    if is_gated:
        return 2 // narrow, 4096, 4, 4
    if outputs >= 65536:
        return 4 // narrow, 2048, 4, None
    return 4 // narrow, 4096, 8, 2


def row_product(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    norm: torch.Tensor | None = None,
    eps: float = 0.0,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    is_gated: bool = False,
) -> torch.Tensor:
    """Write the product of one row into out and return it.

    Shapes: x [1, K], weight [out, K] ([2 out, K] when gated, gates first), norm [K], bias [out], residual [1, out];
    all contiguous.
    """
    outputs, K = out.shape[1], weight.shape[1]
    BN, BK, warps, programs = _tiling(outputs, K, weight.element_size(), is_gated=is_gated)
    tiles = triton.cdiv(outputs, BN)
    grid = tiles if programs is None else min(tiles, programs * num_multiprocessors(x.device))
    multiply_row[(grid,)](  # pyright: ignore[reportIndexIssue]
        out,
        x,
        x if norm is None else norm,
        weight,
        x if bias is None else bias,
        x if residual is None else residual,
        eps,
        OUT=outputs,
        K=K,
        KP=triton.next_power_of_2(K),
        BN=BN,
        BK=BK,
        HAS_NORM=norm is not None,
        HAS_BIAS=bias is not None,
        HAS_RESIDUAL=residual is not None,
        IS_GATED=is_gated,
        num_warps=warps,
        **overlap(x.device),
    )
    return out

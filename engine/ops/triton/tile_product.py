"""A few rows times a weight on CUDA's matrix units: all rows of the step against one tile of outputs a program.

The rows of a decode step fit in one tile, so a weight is read from memory once; what is left is to keep many bytes in
flight (deep asynchronous copies) and to ask for the first of them before the kernel waits for the one that wrote x:
they are prefetched into the L2 cache (``launch.py``).

Narrow outputs over long rows leave most of the chip idle; such a product is split over K, and every split stores
float32 partial sums, which the next kernel adds up (``norms.py``): no atomics, one order.

Does not: norm (a loop over x that norms as it goes costs more than a launch), or serve float32 and prefill sizes.
Source: own; split-K with a separate reduction is common practice; measurements in LOG.md.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and sizes one by one
import dataclasses

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from engine.ops.triton.launch import num_multiprocessors, overlap

MOST_ROWS = 64


@triton.jit
def _prefetch(at):
    """Ask for the cache lines of these addresses to be in L2."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [at.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def multiply_tile(
    out_ptr,
    x_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    rows,
    OUT: tl.constexpr,
    K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLITS: tl.constexpr,
    PREFETCH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    IS_GATED: tl.constexpr,
    IS_PARTIAL: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Multiply. IS_PARTIAL: out is [SPLITS, rows, OUT] partial sums. PREFETCH: columns that are asked for early."""
    tile = tl.program_id(0)
    split = tl.program_id(1)
    PER_SPLIT: tl.constexpr = ((K + BK - 1) // BK + SPLITS - 1) // SPLITS * BK
    EVEN: tl.constexpr = (K % BK == 0) & (OUT % BN == 0)
    n = tl.arange(0, BM)
    j = tl.arange(0, BN)
    k = tl.arange(0, BK)
    is_row = n < rows
    is_output = tile * BN + j < OUT
    first = split * PER_SPLIT
    last = tl.minimum(first + PER_SPLIT, K)
    gate_ptr = weight_ptr + tile.to(tl.int64) * (BN * K)
    up_ptr = gate_ptr + OUT * K
    if PDL:
        line = tl.minimum(first + tl.arange(0, PREFETCH // 64) * 64, K - 1)
        line_at = tl.minimum(j, OUT - 1 - tile * BN)[:, None] * K + line[None, :]
        _prefetch(gate_ptr + line_at)
        if IS_GATED:
            _prefetch(up_ptr + line_at)
        gdc_launch_dependents()
        gdc_wait()
    acc = tl.zeros([BM, BN], dtype=tl.float32)
    acc_up = tl.zeros([BM, BN], dtype=tl.float32)
    for start in tl.range(first, last, BK, num_stages=STAGES):
        at = j[:, None] * K + (start + k)[None, :]
        x_at = x_ptr + n[:, None] * K + (start + k)[None, :]
        if EVEN:
            x = tl.load(x_at, mask=is_row[:, None], other=0.0)
            w = tl.load(gate_ptr + at)
        else:
            x = tl.load(x_at, mask=is_row[:, None] & (start + k < K)[None, :], other=0.0)
            w = tl.load(gate_ptr + at, mask=is_output[:, None] & (start + k < K)[None, :], other=0.0)
        acc = tl.dot(x, tl.trans(w), acc)
        if IS_GATED:
            if EVEN:
                u = tl.load(up_ptr + at)
            else:
                u = tl.load(up_ptr + at, mask=is_output[:, None] & (start + k < K)[None, :], other=0.0)
            acc_up = tl.dot(x, tl.trans(u), acc_up)
    if IS_GATED:
        acc = acc * tl.sigmoid(acc) * acc_up
    inside = is_row[:, None] & is_output[None, :]
    out_at = n.to(tl.int64)[:, None] * OUT + (tile * BN + j)[None, :]
    if IS_PARTIAL:
        out_ptr += split.to(tl.int64) * rows * OUT
    if HAS_BIAS:
        acc += tl.load(bias_ptr + tile * BN + j, mask=is_output, other=0.0).to(tl.float32)[None, :]
    if HAS_RESIDUAL:
        acc += tl.load(residual_ptr + out_at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + out_at, acc.to(out_ptr.dtype.element_ty), mask=inside)


@dataclasses.dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is cut. BN outputs and BK columns a step of a program, stages steps in flight.

    prefetch: columns that are asked for before the wait; too many delay the kernel that is waited for.
    """

    BN: int
    BK: int
    stages: int
    warps: int = 4
    splits: int = 1
    prefetch: int = 256


def whole_tiling(outputs: int, K: int, *, is_gated: bool) -> Tiling:
    """Choose for a product that is not split: a fixed table, measured once."""
    if is_gated and outputs > 8192:
        return Tiling(128, 64, 4, 8, prefetch=64)
    if is_gated:
        return Tiling(16, 128, 5, prefetch=1024) if K <= 1024 else Tiling(32, 64, 6, prefetch=1024)
    if outputs <= 2048:
        return Tiling(16, 64, 6, prefetch=1024)
    return Tiling(64, 128, 5) if outputs <= 8192 else Tiling(64, 64, 4) if K <= 1024 else Tiling(128, 128, 4, 8)


def split_tiling(outputs: int, K: int, num_programs: int) -> Tiling:
    """Choose for a product that may be split: as many splits as give every multiprocessor a program."""
    if outputs * K >= 2**23:
        tiling, fewest_chunks = Tiling(64, 128, 4) if K <= 8192 else Tiling(64, 128, 5, prefetch=128), 6
    elif K <= 1024:
        tiling, fewest_chunks = Tiling(32, 64, 6, prefetch=1024), 3
    else:
        tiling, fewest_chunks = Tiling(16, 128, 6, prefetch=1024), 6
    chunks = triton.cdiv(K, tiling.BK)
    splits = max(1, min(num_programs // triton.cdiv(outputs, tiling.BN), chunks // fewest_chunks, 8))
    return dataclasses.replace(tiling, splits=triton.cdiv(chunks, triton.cdiv(chunks, splits)))  # none is empty


def _launch(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    tiling: Tiling,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    is_gated: bool = False,
) -> torch.Tensor:
    outputs, K = out.shape[-1], weight.shape[1]
    multiply_tile[(triton.cdiv(outputs, tiling.BN), tiling.splits)](  # pyright: ignore[reportIndexIssue]
        out,
        x,
        weight,
        x if bias is None else bias,
        x if residual is None else residual,
        x.shape[0],
        OUT=outputs,
        K=K,
        BM=MOST_ROWS,
        BN=tiling.BN,
        BK=tiling.BK,
        SPLITS=tiling.splits,
        PREFETCH=min(tiling.prefetch, max(64, triton.next_power_of_2(K))),
        HAS_BIAS=bias is not None,
        HAS_RESIDUAL=residual is not None,
        IS_GATED=is_gated,
        IS_PARTIAL=out.dim() == 3,
        STAGES=tiling.stages,
        num_warps=tiling.warps,
        num_stages=tiling.stages,
        **overlap(x.device),
    )
    return out


def tile_product(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    is_gated: bool = False,
) -> torch.Tensor:
    """Write x W^T (+ bias) (+ residual), or silu(gate) * up, into out and return it.

    Shapes: x [N, K] with N <= MOST_ROWS, weight [out, K] ([2 out, K] when gated, gates first), out [N, out].
    """
    tiling = whole_tiling(out.shape[1], weight.shape[1], is_gated=is_gated)
    return _launch(out, x, weight, tiling, bias=bias, residual=residual, is_gated=is_gated)


def partial_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the partial sums of x W^T over as many stretches of K as keep the device busy.

    Shapes: x [N, K] with N <= MOST_ROWS, weight [out, K] -> [splits, N, out] float32.
    """
    tiling = split_tiling(weight.shape[0], weight.shape[1], num_multiprocessors(x.device))
    out = torch.empty(tiling.splits, x.shape[0], weight.shape[0], dtype=torch.float32, device=x.device)
    return _launch(out, x, weight, tiling)

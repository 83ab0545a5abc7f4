"""A few rows times a large weight on Hopper: the weight streams through shared memory, from before the rows exist.

A program holds a ring of stages, each a stretch of K of its weight tile and of the rows, fetched by descriptor (TMA).
The weights of the first stages are asked for before the wait for the kernel that writes the rows (``launch.py``), so
the memory is busy while that one ends; the rows follow after it. A stage is asked for again as soon as the matrix units
have read it. Written in Gluon, Triton's lower level: only there can the two parts of a stage be asked for apart.

How much may be asked for early is a trade: what is in flight delays a small kernel that is waited for.

Does not: serve weights below ``LEAST_NUMBERS``, rows of four bytes, or chips without Hopper's matrix instructions
(``tile_product.py``). Source: own; measurements in LOG.md.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and sizes one by one
import dataclasses
import functools

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from engine.ops.triton.launch import num_multiprocessors, overlap

MOST_ROWS = 64  # what one instruction of the matrix units takes
CHUNK = 128  # columns of K in a stage
LEAST_NUMBERS = 2**23  # of a weight; below, setting a ring up costs more than it saves


@gluon.jit
def _ask_for_weights(tiles, slots, bars, stage, first, k, BYTES: gl.constexpr):
    """Open a stage, which is full once BYTES have arrived, and ask for its weights: the larger part of them."""
    bar = bars.index(stage)
    mbarrier.expect(bar, BYTES)
    tma.async_copy_global_to_shared(tiles, [0, first, k], bar, slots.index(stage))


@gluon.jit
def _finish(
    out_ptr,
    bias_ptr,
    residual_ptr,
    acc,
    first,
    rows,
    OUT: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    HAS_RESIDUAL: gl.constexpr,
    mma: gl.constexpr,
):
    """Add what is to be added, and store the tile."""
    n = gl.arange(0, acc.shape[0], gl.SliceLayout(1, mma))
    j = first + gl.arange(0, acc.shape[1], gl.SliceLayout(0, mma))
    inside = (n < rows)[:, None] & (j < OUT)[None, :]
    at = n[:, None] * OUT + j[None, :]
    if HAS_BIAS:
        acc += gl.load(bias_ptr + j, mask=j < OUT, other=0.0).to(gl.float32)[None, :]
    if HAS_RESIDUAL:
        acc += gl.load(residual_ptr + at, mask=inside, other=0.0).to(gl.float32)
    gl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=inside)


@gluon.jit
def stream_tile(
    out_ptr,
    x_tiles,
    weight_tiles,
    bias_ptr,
    residual_ptr,
    rows,
    OUT: gl.constexpr,
    CHUNKS: gl.constexpr,
    BN: gl.constexpr,
    BK: gl.constexpr,
    SPLITS: gl.constexpr,
    STAGES: gl.constexpr,
    EARLY: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    HAS_RESIDUAL: gl.constexpr,
    IS_PARTIAL: gl.constexpr,
    PDL: gl.constexpr,
):
    """Multiply all rows by BN outputs, over CHUNKS stages of K. IS_PARTIAL: out is [splits, rows, OUT] partial sums.

    What a descriptor reads outside its matrix is zero: past the last row, the last output, the last column.
    """
    BM: gl.constexpr = x_tiles.block_type.shape[0]
    PARTS: gl.constexpr = weight_tiles.block_type.shape[0]  # gates and ups, or one
    BYTES: gl.constexpr = (BM + PARTS * BN) * BK * 2
    AHEAD: gl.constexpr = min(STAGES - 1, CHUNKS)
    x_slots = gl.allocate_shared_memory(x_tiles.dtype, [STAGES, BM, BK], x_tiles.layout)
    slots = gl.allocate_shared_memory(x_tiles.dtype, [STAGES, PARTS, BN, BK], weight_tiles.layout)
    bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for a in gl.static_range(STAGES):
        mbarrier.init(bars.index(a), count=1)
    fence_async_shared()
    first = gl.program_id(0) * BN
    k = gl.program_id(1) * BK
    STEP: gl.constexpr = SPLITS * BK  # splits take turns: together they read a row of the weight from end to end
    for b in gl.static_range(min(AHEAD, EARLY)):
        _ask_for_weights(weight_tiles, slots, bars, b, first, k + b * STEP, BYTES)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    for c in gl.static_range(AHEAD):
        if c >= EARLY:
            _ask_for_weights(weight_tiles, slots, bars, c, first, k + c * STEP, BYTES)
        tma.async_copy_global_to_shared(x_tiles, [0, k + c * STEP], bars.index(c), x_slots.index(c))
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, gl.num_warps() // 4], [16, PARTS * BN, 16])
    acc = gl.zeros([BM, PARTS * BN], gl.float32, mma)
    for i in range(CHUNKS):
        stage = i % STAGES
        mbarrier.wait(bars.index(stage), (i // STAGES) & 1)
        weights = slots.index(stage).reshape([PARTS * BN, BK]).permute((1, 0))
        acc = warpgroup_mma(x_slots.index(stage), weights, acc, use_acc=i > 0, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
        ahead = i + STAGES - 1
        if ahead < CHUNKS:  # into the stage before this one, which has been read
            free = ahead % STAGES
            _ask_for_weights(weight_tiles, slots, bars, free, first, k + ahead * STEP, BYTES)
            tma.async_copy_global_to_shared(x_tiles, [0, k + ahead * STEP], bars.index(free), x_slots.index(free))
    acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
    out_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, gl.num_warps() // 4], [16, BN, 16])
    if PARTS == 2:
        gate, up = acc.reshape([BM, 2, BN]).permute((0, 2, 1)).split()
        acc = gl.convert_layout(gate / (1.0 + gl.exp(-gate)) * up, out_layout)
    if IS_PARTIAL:
        out_ptr += gl.program_id(1).to(gl.int64) * rows * OUT
    _finish(out_ptr, bias_ptr, residual_ptr, acc, first, rows, OUT, HAS_BIAS, HAS_RESIDUAL, out_layout)


@dataclasses.dataclass(frozen=True, slots=True)
class Stream:
    """How a product is cut: BN outputs a program, stages in its ring, how many are asked for early, splits of K."""

    BN: int
    stages: int
    early: int
    splits: int = 1


def whole_stream(outputs: int, *, is_gated: bool) -> Stream:
    """Choose for a product that is not split: a fixed table, measured once. A gated one follows a norm: less early."""
    if is_gated:
        return Stream(64, 4, early=1)
    return Stream(64, 6, early=6) if outputs <= 8192 else Stream(128, 4, early=4)


def split_stream(outputs: int, K: int, num_programs: int) -> Stream:
    """Choose for a product that may be split: as many splits as give every multiprocessor a program, none empty."""
    chunks = triton.cdiv(K, CHUNK)
    splits = max(1, min(num_programs // triton.cdiv(outputs, 64), chunks // 6, 8))
    return Stream(64, 6, early=6, splits=triton.cdiv(chunks, triton.cdiv(chunks, splits)))


@functools.cache
def _is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 9


def can_stream(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether a product is one of these. Descriptors want rows that begin at multiples of 16 bytes."""
    return (
        weight.numel() >= LEAST_NUMBERS
        and x.shape[0] <= MOST_ROWS
        and x.element_size() == 2
        and not x.data_ptr() % 16
        and not weight.data_ptr() % 16
        and not weight.shape[1] % 8
        and _is_hopper(x.device)
    )


def _tiles(matrix: torch.Tensor, block: list[int]) -> TensorDescriptor:
    dtype = gl.bfloat16 if matrix.dtype is torch.bfloat16 else gl.float16
    return TensorDescriptor.from_tensor(matrix, block, gl.NVMMASharedLayout.get_default_for(block, dtype))


def stream_product(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    stream: Stream,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    is_gated: bool = False,
) -> torch.Tensor:
    """Write x W^T (+ bias) (+ residual), or silu(gate) * up, into out and return it. The operands ``can_stream``.

    Shapes: x [N, K] with N <= MOST_ROWS, weight [out, K] ([2 out, K] when gated, gates first), out [N, out], or
    [splits, N, out] float32 for the partial sums of ``split_stream``.
    """
    outputs, K = out.shape[-1], weight.shape[1]
    parts = 2 if is_gated else 1
    stream_tile[(triton.cdiv(outputs, stream.BN), stream.splits)](  # pyright: ignore[reportIndexIssue]
        out,
        _tiles(x, [MOST_ROWS, CHUNK]),
        _tiles(weight.view(parts, outputs, K), [parts, stream.BN, CHUNK]),
        x if bias is None else bias,
        x if residual is None else residual,
        x.shape[0],
        OUT=outputs,
        CHUNKS=triton.cdiv(triton.cdiv(K, CHUNK), stream.splits),
        BN=stream.BN,
        BK=CHUNK,
        SPLITS=stream.splits,
        STAGES=stream.stages,
        EARLY=stream.early,
        HAS_BIAS=bias is not None,
        HAS_RESIDUAL=residual is not None,
        IS_PARTIAL=out.dim() == 3,
        num_warps=4,
        **overlap(x.device),
    )
    return out


def whole_product(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    is_gated: bool = False,
) -> torch.Tensor:
    """Multiply without a split, as ``stream_product`` says."""
    stream = whole_stream(out.shape[1], is_gated=is_gated)
    return stream_product(out, x, weight, stream, bias=bias, residual=residual, is_gated=is_gated)


def split_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the partial sums of x W^T over as many stretches of K as keep the device busy.

    Shapes: x [N, K], weight [out, K] -> [splits, N, out] float32.
    """
    stream = split_stream(weight.shape[0], weight.shape[1], num_multiprocessors(x.device))
    out = torch.empty(stream.splits, x.shape[0], weight.shape[0], dtype=torch.float32, device=x.device)
    return stream_product(out, x, weight, stream)

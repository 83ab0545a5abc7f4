"""Decode attention of many sequences on CUDA: keys and values stream through shared memory, from before the query.

Program (n, g) serves row n of sequence n and key head g, as in ``rotary_attention.py``, but its tiles of keys and
values are copied into a small ring in shared memory. What the cache holds of earlier tokens was written by earlier
steps, so the first tiles are asked for before the wait for the kernel that computes this step's queries
(``launch.py``). The ring is so small that four programs share a multiprocessor: all programs of a large batch run at
once, and none begins in a second wave, whose loads would wait for the first. Written in Gluon, Triton's lower level,
which leaves the ring to us.

Does not: serve heads of up to 64 or over 128 dimensions, few programs, or four-byte caches (``rotary_attention.py``).
Source: own; the online softmax is FlashAttention's; measurements in LOG.md.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers, sizes and strides one by one
import functools

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from engine.ops.triton.launch import overlap

TOKENS = 32  # of a tile
STAGES = 3  # tiles in the ring
WARPS = 2
FEWEST_PROGRAMS = 128  # below, one large tile in registers is faster


@gluon.jit
def _find_blocks(table_ptr, i, past, SIZE: gl.constexpr, BN: gl.constexpr, copied: gl.constexpr):
    """Look up where the tokens of tile i are cached."""
    token = i * BN + gl.arange(0, BN, gl.SliceLayout(1, copied))
    return gl.load(table_ptr + token // SIZE, mask=token < past, other=0).to(gl.int64)


@gluon.jit
def _ask_for_tile(
    k_ring, v_ring, i, key_ptr, value_ptr, block, past, kv_stride_j, kv_stride_i,
    SIZE: gl.constexpr, D: gl.constexpr, copied: gl.constexpr,
):  # fmt: skip
    """Copy keys and values of tile i; zeros for tokens that are not past. Always one group of copies."""
    slot = i % k_ring.shape[0]
    token = i * k_ring.shape[1] + gl.arange(0, k_ring.shape[1], gl.SliceLayout(1, copied))
    d = gl.arange(0, k_ring.shape[2], gl.SliceLayout(0, copied))
    at = (block * kv_stride_j + (token % SIZE) * kv_stride_i)[:, None] + d[None, :]
    seen = (token < past)[:, None] & (d < D)[None, :]
    async_copy.async_copy_global_to_shared(k_ring.index(slot), key_ptr + at, mask=seen)
    async_copy.async_copy_global_to_shared(v_ring.index(slot), value_ptr + at, mask=seen)
    async_copy.commit_group()


@gluon.jit
def _turn(
    row_ptr,
    gain_ptr,
    at,
    turned_at,
    inside,
    cos,
    sin,
    eps,
    D: gl.constexpr,
    HAS_GAIN: gl.constexpr,
    IS_ONE: gl.constexpr,
):
    """Load heads of the row (one when IS_ONE), norm and rotate them, in float32."""
    x = gl.load(row_ptr + at, mask=inside, other=0.0).to(gl.float32)
    turned = gl.load(row_ptr + turned_at, mask=inside, other=0.0).to(gl.float32)
    if HAS_GAIN:
        square = gl.sum(x * x, axis=0 if IS_ONE else 1)
        norm = gl.rsqrt((square if IS_ONE else square[:, None]) / D + eps)
        x *= norm * gl.load(gain_ptr + at, mask=inside, other=0.0).to(gl.float32)
        turned *= norm * gl.load(gain_ptr + turned_at, mask=inside, other=0.0).to(gl.float32)
    return x * cos + turned * sin


@gluon.jit
def _turn_heads(
    row_ptr, gain_ptr, cos, sin, g, eps, dtype: gl.constexpr, H: gl.constexpr, G: gl.constexpr, D: gl.constexpr,
    DP: gl.constexpr, RP: gl.constexpr, HAS_GAIN: gl.constexpr, heads: gl.constexpr,
):  # fmt: skip
    """Load what key head g needs of the row, rotated: queries [RP, DP] and key [DP]."""
    R: gl.constexpr = H // G
    r = gl.arange(0, RP, gl.SliceLayout(1, heads))
    d = gl.arange(0, DP, gl.SliceLayout(0, heads))
    turned = gl.where(d < D // 2, d + D // 2, d - D // 2)
    head = ((g * R + r) * D)[:, None]
    inside = (r < R)[:, None] & (d < D)[None, :]
    query = _turn(
        row_ptr, gain_ptr, head + d[None, :], head + turned[None, :], inside, cos[None, :], sin[None, :],
        eps, D, HAS_GAIN, IS_ONE=False,
    )  # fmt: skip
    own = (H + g) * D
    key = _turn(row_ptr, gain_ptr, own + d, own + turned, d < D, cos, sin, eps, D, HAS_GAIN, IS_ONE=True)
    return query.to(dtype), key.to(dtype)


@gluon.jit
def _absorb(query, k_slot, v_slot, seen, scale, best, total, acc, mma: gl.constexpr):
    """Take a tile of tokens into the online softmax."""
    keys = k_slot.permute((1, 0)).load(gl.DotOperandLayout(1, mma, 2))
    scores = mma_v2(query, keys, gl.zeros([query.shape[0], keys.shape[1]], gl.float32, mma)) * scale
    scores = gl.where(seen[None, :], scores, float("-inf"))
    peak = gl.maximum(best, gl.max(scores, axis=1))
    weights = gl.exp(scores - peak[:, None])
    decay = gl.exp(best - peak)
    total = total * decay + gl.sum(weights, axis=1)
    values = v_slot.load(gl.DotOperandLayout(1, mma, 2))
    weights = gl.convert_layout(weights.to(values.dtype), gl.DotOperandLayout(0, mma, 2))
    return peak, total, mma_v2(weights, values, acc * decay[:, None])


@gluon.jit
def stream_decode(
    out_ptr,
    qkv_ptr,
    gain_ptr,
    cos_ptr,
    sin_ptr,
    position_ptr,
    key_ptr,
    value_ptr,
    kv_lens_ptr,
    table_ptr,
    scale,
    eps,
    kv_stride_g,
    kv_stride_j,
    kv_stride_i,
    table_stride,
    SIZE: gl.constexpr,
    H: gl.constexpr,
    G: gl.constexpr,
    D: gl.constexpr,
    DP: gl.constexpr,
    RP: gl.constexpr,
    BN: gl.constexpr,
    RING: gl.constexpr,
    HAS_GAIN: gl.constexpr,
    PDL: gl.constexpr,
):
    """Attend row ``program_id(0)`` for key head ``program_id(1)``. RP: heads of the group, padded; DP: D, padded."""
    W: gl.constexpr = gl.num_warps()
    dtype: gl.constexpr = key_ptr.dtype.element_ty
    copied: gl.constexpr = gl.BlockedLayout([1, 8], [256 // DP, DP // 8], [W, 1], [1, 0])
    heads: gl.constexpr = gl.BlockedLayout([1, 4], [128 // DP, DP // 4], [W, 1], [1, 0])
    mma: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [1, W], [16, 8])
    k_ring = gl.allocate_shared_memory(dtype, [RING, BN, DP], gl.SwizzledSharedLayout(8, 1, 8, [1, 0]))
    v_ring = gl.allocate_shared_memory(dtype, [RING, BN, DP], gl.SwizzledSharedLayout(8, 1, 8, [1, 0]))
    n, g = gl.program_id(0), gl.program_id(1)
    position = gl.load(position_ptr + n)
    live = position < gl.load(kv_lens_ptr + n)
    past = gl.where(live, position, 0)  # tokens of the cache, written by earlier steps
    table_ptr += n * table_stride
    key_ptr += g * kv_stride_g
    value_ptr += g * kv_stride_g
    for a in gl.static_range(RING - 1):
        found = _find_blocks(table_ptr, a, past, SIZE, BN, copied)
        _ask_for_tile(k_ring, v_ring, a, key_ptr, value_ptr, found, past, kv_stride_j, kv_stride_i, SIZE, D, copied)
    block = _find_blocks(table_ptr, RING - 1, past, SIZE, BN, copied)
    own_block = gl.load(table_ptr + position // SIZE, mask=live, other=0).to(gl.int64)
    d = gl.arange(0, DP, gl.SliceLayout(0, heads))
    e = gl.arange(0, DP, gl.SliceLayout(0, mma))
    cos = gl.load(cos_ptr + position * D + d, mask=d < D, other=0.0).to(gl.float32)
    sin = gl.load(sin_ptr + position * D + d, mask=d < D, other=0.0).to(gl.float32)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row_ptr = qkv_ptr + n * ((H + 2 * G) * D)
    query, key = _turn_heads(row_ptr, gain_ptr, cos, sin, g, eps, dtype, H, G, D, DP, RP, HAS_GAIN, heads)
    value = gl.load(row_ptr + (H + G + g) * D + e, mask=e < D, other=0.0).to(dtype)
    own_place = own_block * kv_stride_j + (position % SIZE) * kv_stride_i
    gl.store(key_ptr + own_place + d, key, mask=(d < D) & live)
    gl.store(value_ptr + own_place + e, value, mask=(e < D) & live)
    alone = gl.sum(query.to(gl.float32) * key.to(gl.float32)[None, :], axis=1) * scale  # the row sees itself
    best = gl.convert_layout(alone, gl.SliceLayout(1, mma))
    total = gl.full([RP], 1.0, gl.float32, gl.SliceLayout(1, mma))
    acc = gl.zeros([RP, DP], gl.float32, mma) + value.to(gl.float32)[None, :]
    query = gl.convert_layout(query, gl.DotOperandLayout(0, mma, 2))
    tokens = gl.arange(0, BN, gl.SliceLayout(0, mma))
    for i in range(gl.cdiv(past, BN)):
        async_copy.wait_group(RING - 2)
        seen = i * BN + tokens < past
        keys, values = k_ring.index(i % RING), v_ring.index(i % RING)
        best, total, acc = _absorb(query, keys, values, seen, scale, best, total, acc, mma)
        # The tile before has been read by all: the compiler puts a barrier before what overwrites it.
        ahead = i + RING - 1
        _ask_for_tile(k_ring, v_ring, ahead, key_ptr, value_ptr, block, past, kv_stride_j, kv_stride_i, SIZE, D, copied)
        block = _find_blocks(table_ptr, ahead + 1, past, SIZE, BN, copied)
    async_copy.wait_group(0)  # what is left is empty, and still writes zeros into the ring
    q = gl.arange(0, RP, gl.SliceLayout(1, mma))
    out_at = out_ptr + n * (H * D) + ((g * (H // G) + q) * D)[:, None] + e[None, :]
    result = gl.where(live, acc / total[:, None], 0.0).to(dtype)
    gl.store(out_at, result, mask=(q < H // G)[:, None] & (e < D)[None, :])


@functools.cache
def _copies_by_itself(device: torch.device) -> bool:
    """Whether the device copies into shared memory without going through registers: since Ampere."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def can_stream(out: torch.Tensor, key_blocks: torch.Tensor) -> bool:
    """Whether a step's attention is one of these. Copies are of 16 bytes, so heads begin at multiples of that."""
    N, H, D = out.shape
    G = key_blocks.shape[0]
    return (
        key_blocks.element_size() == 2
        and 64 < D <= 128
        and not D % 16
        and H // G <= 16
        and N * G >= FEWEST_PROGRAMS
        and not any(stride % 16 for stride in key_blocks.stride()[:3])
        and not key_blocks.data_ptr() % 16
        and _copies_by_itself(out.device)
    )


def stream_attention(
    out: torch.Tensor,
    qkv: torch.Tensor,
    positions: torch.Tensor,
    *,
    cos: torch.Tensor,
    signed_sin: torch.Tensor,
    gain: torch.Tensor | None,
    eps: float,
    key_blocks: torch.Tensor,
    value_blocks: torch.Tensor,
    kv_lens: torch.Tensor,
    block_table: torch.Tensor,
) -> None:
    """Launch ``stepscope::rotary_attention_`` for operands that ``can_stream``."""
    N, H, D = out.shape
    G, _, size, _ = key_blocks.shape
    with torch.cuda.device(out.device):
        stream_decode[(N, G)](  # pyright: ignore[reportIndexIssue]
            out,
            qkv,
            cos if gain is None else gain,
            cos,
            signed_sin,
            positions,
            key_blocks,
            value_blocks,
            kv_lens,
            block_table,
            D**-0.5,
            eps,
            key_blocks.stride(0),
            key_blocks.stride(1),
            key_blocks.stride(2),
            block_table.stride(0),
            SIZE=size,
            H=H,
            G=G,
            D=D,
            DP=triton.next_power_of_2(D),
            RP=16,
            BN=TOKENS,
            RING=STAGES,
            HAS_GAIN=gain is not None,
            num_warps=WARPS,
            **overlap(out.device),
        )

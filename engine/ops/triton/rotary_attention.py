"""The CUDA kernel of ``stepscope::rotary_attention_``: one launch norms, rotates, writes keys and values and attends.

Program (n, g) serves row n of sequence n and key head g. What the cache holds of earlier tokens was written by earlier
steps, so a program loads its first tile of keys and values before it waits for the kernel that computes this step's
queries (``launch.py``). The row's own key and value never come back from memory: they open the online softmax.

Does not: serve steps with several rows a sequence (``paged_attention.py``), or large batches of large heads, whose
tiles do not fit into registers (``streamed_attention.py``). Source: own; the online softmax is FlashAttention's.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers, sizes and strides one by one
# pyright: reportPossiblyUnboundVariable=false
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from engine.ops.triton.launch import overlap


@triton.jit
def _load_tile(
    key_blocks_ptr,
    value_blocks_ptr,
    table_ptr,
    token,
    past,
    kv_stride_j,
    kv_stride_i,
    SIZE: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
):
    """Load keys and values of these tokens; zeros for those that are not past."""
    d = tl.arange(0, DP)
    seen = token < past
    block = tl.load(table_ptr + token // SIZE, mask=seen, other=0).to(tl.int64)
    at = (block * kv_stride_j + (token % SIZE) * kv_stride_i)[:, None] + d[None, :]
    inside = seen[:, None] & (d < D)[None, :]
    keys = tl.load(key_blocks_ptr + at, mask=inside, other=0.0)
    return keys, tl.load(value_blocks_ptr + at, mask=inside, other=0.0)


@triton.jit
def _rotate(
    row_ptr, gain_ptr, at, turned_at, inside, cos, sin, eps, D: tl.constexpr, HAS_GAIN: tl.constexpr, AXIS: tl.constexpr
):
    """Load heads of the row, norm and rotate them, in float32. Dimension j turns together with j + D/2."""
    x = tl.load(row_ptr + at, mask=inside, other=0.0).to(tl.float32)
    turned = tl.load(row_ptr + turned_at, mask=inside, other=0.0).to(tl.float32)
    if HAS_GAIN:
        norm = tl.rsqrt(tl.sum(x * x, axis=AXIS, keep_dims=True) / D + eps)
        x *= norm * tl.load(gain_ptr + at, mask=inside, other=0.0).to(tl.float32)
        turned *= norm * tl.load(gain_ptr + turned_at, mask=inside, other=0.0).to(tl.float32)
    return x * cos + turned * sin


@triton.jit
def _turn_heads(
    row_ptr,
    gain_ptr,
    cos,
    sin,
    g,
    eps,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    RP: tl.constexpr,
    HAS_GAIN: tl.constexpr,
):
    """Load what key head g needs of the row, in float32: queries [RP, DP] and key [DP], rotated, and value [DP]."""
    R: tl.constexpr = H // G
    r = tl.arange(0, RP)
    d = tl.arange(0, DP)
    turned = tl.where(d < D // 2, d + D // 2, d - D // 2)
    head = ((g * R + r) * D)[:, None]
    inside = (r < R)[:, None] & (d < D)[None, :]
    query = _rotate(
        row_ptr, gain_ptr, head + d[None, :], head + turned[None, :], inside, cos[None, :], sin[None, :],
        eps, D, HAS_GAIN, 1,
    )  # fmt: skip
    own = (H + g) * D
    key = _rotate(row_ptr, gain_ptr, own + d, own + turned, d < D, cos, sin, eps, D, HAS_GAIN, 0)
    return query, key, tl.load(row_ptr + own + G * D + d, mask=d < D, other=0.0).to(tl.float32)


@triton.jit
def _absorb(query, keys, values, seen, scale, best, total, acc):
    """Take a tile of tokens into the online softmax."""
    scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
    scores = tl.where(seen[None, :], scores, float("-inf"))
    peak = tl.maximum(best, tl.max(scores, axis=1))
    weights = tl.exp(scores - peak[:, None])
    decay = tl.exp(best - peak)
    total = total * decay + tl.sum(weights, axis=1)
    acc = acc * decay[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return peak, total, acc


@triton.jit
def attend_decode(
    out_ptr,
    qkv_ptr,
    gain_ptr,
    cos_ptr,
    sin_ptr,
    position_ptr,
    key_blocks_ptr,
    value_blocks_ptr,
    kv_lens_ptr,
    table_ptr,
    scale,
    eps,
    kv_stride_g,
    kv_stride_j,
    kv_stride_i,
    table_stride,
    SIZE: tl.constexpr,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    RP: tl.constexpr,
    BN: tl.constexpr,
    HAS_GAIN: tl.constexpr,
    PDL: tl.constexpr,
):
    """Attend row ``program_id(0)`` for key head ``program_id(1)``.

    RP: heads of the group, padded; DP: D, padded. The next tile is on its way while one is taken in.
    """
    n, g = tl.program_id(0), tl.program_id(1)
    dtype = key_blocks_ptr.dtype.element_ty
    d = tl.arange(0, DP)
    in_head, position = d < D, tl.load(position_ptr + n)
    live = position < tl.load(kv_lens_ptr + n)
    past = tl.where(live, position, 0)  # tokens of the cache, written by earlier steps
    table_ptr += n * table_stride
    key_blocks_ptr += g * kv_stride_g
    value_blocks_ptr += g * kv_stride_g
    token = tl.arange(0, BN)
    keys, values = _load_tile(
        key_blocks_ptr, value_blocks_ptr, table_ptr, token, past, kv_stride_j, kv_stride_i, SIZE, D, DP
    )
    cos = tl.load(cos_ptr + position * D + d, mask=in_head, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + position * D + d, mask=in_head, other=0.0).to(tl.float32)
    own_block = tl.load(table_ptr + position // SIZE, mask=live, other=0).to(tl.int64)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row_ptr = qkv_ptr + n * ((H + 2 * G) * D)
    query, key, value = _turn_heads(row_ptr, gain_ptr, cos, sin, g, eps, H, G, D, DP, RP, HAS_GAIN)
    query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    own_place = own_block * kv_stride_j + (position % SIZE) * kv_stride_i
    tl.store(key_blocks_ptr + own_place + d, key, mask=in_head & live)
    tl.store(value_blocks_ptr + own_place + d, value, mask=in_head & live)
    best = tl.sum(query.to(tl.float32) * key.to(tl.float32)[None, :], axis=1) * scale  # the row sees itself
    total = tl.full([RP], 1.0, dtype=tl.float32)
    acc = tl.zeros([RP, DP], dtype=tl.float32) + value.to(tl.float32)[None, :]
    for start in range(0, past, BN):
        next_keys, next_values = _load_tile(
            key_blocks_ptr, value_blocks_ptr, table_ptr, start + BN + token, past, kv_stride_j, kv_stride_i, SIZE, D, DP
        )
        best, total, acc = _absorb(query, keys, values, start + token < past, scale, best, total, acc)
        keys, values = next_keys, next_values
    r = tl.arange(0, RP)
    out_at = out_ptr + n * (H * D) + ((g * (H // G) + r) * D)[:, None] + d[None, :]
    result = tl.where(live, acc / total[:, None], 0.0).to(dtype)
    tl.store(out_at, result, mask=(r < H // G)[:, None] & in_head[None, :])


def rotary_attention_cuda(
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
    """Launch ``stepscope::rotary_attention_``. out, qkv, tables and blocks are contiguous in their last axes."""
    N, H, D = out.shape
    G, _, size, _ = key_blocks.shape
    if N == 0:
        return
    tokens, warps = _tile(N * G, D, key_blocks.element_size())
    with torch.cuda.device(out.device):
        attend_decode[(N, G)](  # pyright: ignore[reportIndexIssue]
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
            DP=max(16, triton.next_power_of_2(D)),
            RP=max(16, triton.next_power_of_2(H // G)),
            BN=tokens,
            HAS_GAIN=gain is not None,
            num_warps=warps,
            **overlap(out.device),
        )


def _tile(programs: int, head_size: int, itemsize: int) -> tuple[int, int]:
    """Choose (tokens a tile, warps): a fixed table, measured once. Few programs hold a large tile before they wait."""
    if itemsize > 2 or head_size > 128:
        return 32, 8
    if programs < 128:
        return (256, 8) if head_size <= 64 else (128, 8)
    return (128, 4) if head_size <= 64 else (64, 4)

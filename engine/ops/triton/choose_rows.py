"""The CUDA kernel of ``stepscope::choose_rows``: the FULL choice of a token, one launch, one program a row.

A row's cuts are found by bisecting the bits of an order-preserving key, each step one pass over the row (which stays in
the L2 cache) that adds integers, so the sums are exact and the row cuts in the same place in every batch. A row pays
only for what its parameters ask: greedy rows stop after the argmax, rows without top-k or top-p skip that search. The
noise is the hash of ``sampling/noise.py``.

Does not: write samples or mark tokens as seen. Source: own; the meaning is that of ``sampling/choice.py``.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and sizes one by one
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from engine.ops.triton.launch import overlap

SPAN = 4096
COUNT = tl.constexpr(0)  # what is added up: tokens, or their weight too
MASS = tl.constexpr(1)
GOLDEN = tl.constexpr(0x9E3779B97F4A7C15 - (1 << 64))
MIX_FIRST = tl.constexpr(0xBF58476D1CE4E5B9 - (1 << 64))
MIX_SECOND = tl.constexpr(0x94D049BB133111EB - (1 << 64))
LOW_63 = tl.constexpr((1 << 63) - 1)
MASS_UNIT = tl.constexpr(2.0**40)
BELOW_ONE = tl.constexpr(1.0 - 2.0**-24)


@triton.jit
def _shift(bits, BITS: tl.constexpr):
    """Shift right without dragging the sign bit along."""
    return (bits.to(tl.uint64, bitcast=True) >> BITS).to(tl.int64, bitcast=True)


@triton.jit
def _mix(bits):
    """Scramble 64 bits, as ``sampling/noise.py`` does."""
    bits = (bits ^ _shift(bits, 30)) * MIX_FIRST
    bits = (bits ^ _shift(bits, 27)) * MIX_SECOND
    return bits ^ _shift(bits, 31)


@triton.jit
def _gumbel(seed, position, v):
    """Give the standard Gumbel noise of (seed, position, id)."""
    row_key = _mix(_mix(seed + GOLDEN) + (position + 1) * GOLDEN)
    bits = _mix(row_key + (v.to(tl.int64) + 1) * GOLDEN) & LOW_63
    u = tl.minimum((bits.to(tl.float32) + 0.5) * (2.0**-63), BELOW_ONE)
    # -log(1 - u): by its series where 1 - u would lose the digits that decide.
    series = u * (1.0 + u * (1 / 2 + u * (1 / 3 + u * (1 / 4 + u * (1 / 5 + u * (1 / 6))))))
    return -tl.log(tl.where(u < 0.0625, series, -tl.log(1.0 - u)))


@triton.jit
def _ordered(x):
    """Map logits to unsigned integers of the same order; both zeros are one."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return ascending.to(tl.int64) + 2147483648


@triton.jit
def _weigh(row_ptr, best, inverse, floor, cut, V: tl.constexpr, BV: tl.constexpr, OF: tl.constexpr):
    """Add up the tokens whose key is at least ``cut`` (and ``floor``): how many, and their weight."""
    count = tl.zeros([BV], dtype=tl.int32)
    weight = tl.zeros([BV], dtype=tl.int64)
    for start in range(0, V, BV):
        v = start + tl.arange(0, BV)
        x = tl.load(row_ptr + v, mask=v < V, other=float("-inf"))
        key = _ordered(x)
        counted = (v < V) & (key >= cut) & (key >= floor)
        count += counted.to(tl.int32)
        if OF == MASS:
            mass = (tl.exp((x - best) * inverse) * MASS_UNIT).to(tl.int64)
            weight += tl.where(counted, mass, 0)
    count_all = tl.sum(count, axis=0).to(tl.int64)
    return count_all, tl.sum(weight, axis=0) if OF == MASS else count_all


@triton.jit
def _cut(row_ptr, best, inverse, floor, target, V: tl.constexpr, BV: tl.constexpr, OF: tl.constexpr):
    """Find a key down to which the weights reach the target, and down to whose successors they do not.

    It is the largest such key, or any down to the token before when that decides the same.
    """
    cut = tl.zeros([], dtype=tl.int64)
    above = tl.zeros([], dtype=tl.int64)  # tokens above the interval that is left
    inside = tl.full([], V, dtype=tl.int64)  # and within it
    step = tl.full([], 1 << 31, dtype=tl.int64)
    while (step > 0) & (inside > 1):
        count, weight = _weigh(row_ptr, best, inverse, floor, cut + step, V, BV, OF)
        reaches = weight >= target
        upper = count - above
        cut = tl.where(reaches, cut + step, cut)
        inside = tl.where(reaches, upper, inside - upper)
        above = tl.where(reaches, above, count)
        step = step >> 1
    return cut


@triton.jit
def _penalise(row_ptr, logits_ptr, seen_ptr, penalty, V: tl.constexpr, BV: tl.constexpr):
    """Write the penalised row; return its best value and the lowest id that has it (a NaN counts as the best)."""
    best = tl.full([BV], float("-inf"), dtype=tl.float32)
    best_id = tl.arange(0, BV)
    for start in range(0, V, BV):
        v = start + tl.arange(0, BV)
        x = tl.load(logits_ptr + v, mask=v < V, other=float("-inf"))
        if penalty != 1.0:
            seen = tl.load(seen_ptr + v, mask=v < V, other=0) != 0
            x = tl.where(seen, tl.where(x < 0, x * penalty, tl.div_rn(x, penalty)), x)
        tl.store(row_ptr + v, x, mask=v < V)
        rank = tl.where(x != x, float("inf"), x)  # noqa: PLR0124 - only a NaN differs from itself
        best_id = tl.where(rank > best, v, best_id)
        best = tl.maximum(rank, best)
    peak = tl.max(best, axis=0)
    return peak, tl.min(tl.where(best == peak, best_id, V), axis=0)


@triton.jit
def _draw(row_ptr, best, inverse, floor, cut, tied_left, min_p, seed, position, V: tl.constexpr, BV: tl.constexpr):
    """Add noise to the scores of the tokens that are left, and return the lowest id of the best.

    Left are keys of at least ``floor`` and above ``cut``, and the first ``tied_left`` of those that equal it.
    """
    top = tl.full([BV], float("-inf"), dtype=tl.float32)
    top_id = tl.full([BV], V, dtype=tl.int32)
    tied_before = tl.zeros([], dtype=tl.int64)
    for start in range(0, V, BV):
        v = start + tl.arange(0, BV)
        x = tl.load(row_ptr + v, mask=v < V, other=float("-inf"))
        key = _ordered(x)
        score = (x - best) * inverse
        is_tied = (key == cut) & (v < V)
        rank = tied_before + tl.cumsum(is_tied.to(tl.int64), axis=0)
        keep = (v < V) & (key >= floor) & ((key > cut) | (is_tied & (rank <= tied_left))) & (tl.exp(score) >= min_p)
        score = tl.where(keep, score + _gumbel(seed, position, v), float("-inf"))
        top_id = tl.where(score > top, v, top_id)
        top = tl.maximum(score, top)
        tied_before += tl.sum(is_tied.to(tl.int64), axis=0)
    return tl.min(tl.where(top == tl.max(top, axis=0), top_id, V), axis=0)


@triton.jit
def _tied_left(row_ptr, best, inverse, floor, cut, target, V: tl.constexpr, BV: tl.constexpr):
    """Count the tokens with the cut's own key that are needed to reach the target; they all weigh the same."""
    above_count, above = _weigh(row_ptr, best, inverse, floor, cut + 1, V, BV, MASS)
    count, reached = _weigh(row_ptr, best, inverse, floor, cut, V, BV, MASS)
    each = (reached - above) // tl.maximum(count - above_count, 1)
    return (target - above + each - 1) // tl.maximum(each, 1)


@triton.jit
def choose(
    out_ptr,
    row_ptr,
    logits_ptr,
    slot_ptr,
    position_ptr,
    reals_ptr,
    integers_ptr,
    seen_ptr,
    V: tl.constexpr,
    BV: tl.constexpr,
    PDL: tl.constexpr,
):
    """Choose the token of row ``program_id(0)``; row_ptr is room for the penalised logits [R, V]."""
    row = tl.program_id(0).to(tl.int64)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    slot = tl.load(slot_ptr + row)
    position = tl.load(position_ptr + row).to(tl.int64)
    temperature = tl.load(reals_ptr + slot * 4).to(tl.float32)
    top_p = tl.load(reals_ptr + slot * 4 + 1)
    min_p = tl.load(reals_ptr + slot * 4 + 2).to(tl.float32)
    penalty = tl.load(reals_ptr + slot * 4 + 3).to(tl.float32)
    top_k = tl.load(integers_ptr + slot * 2)
    seed = tl.load(integers_ptr + slot * 2 + 1)
    row_ptr += row * V
    best, chosen = _penalise(row_ptr, logits_ptr + row * V, seen_ptr + slot * V, penalty, V, BV)
    if (temperature != 0.0) & (tl.abs(best) < float("inf")):
        tl.debug_barrier()  # the row was written by other threads of this program
        inverse = 1.0 / temperature
        floor = tl.zeros([], dtype=tl.int64)
        if top_k < V:
            floor = _cut(row_ptr, best, inverse, floor, top_k, V, BV, COUNT)
        cut = floor
        tied_left = tl.full([], V, dtype=tl.int64)
        if top_p < 1.0:
            _, whole = _weigh(row_ptr, best, inverse, floor, floor, V, BV, MASS)
            target = tl.maximum(tl.ceil(whole.to(tl.float64) * top_p).to(tl.int64), 1)
            cut = _cut(row_ptr, best, inverse, floor, target, V, BV, MASS)
            tied_left = _tied_left(row_ptr, best, inverse, floor, cut, target, V, BV)
        chosen = _draw(row_ptr, best, inverse, floor, cut, tied_left, min_p, seed, position, V, BV)
    tl.store(out_ptr + row, chosen.to(tl.int64))


def choose_rows_cuda(
    logits: torch.Tensor,
    seq_slots: torch.Tensor,
    positions: torch.Tensor,
    *,
    reals: torch.Tensor,
    integers: torch.Tensor,
    token_seen: torch.Tensor,
    vocab_ids: torch.Tensor,
) -> torch.Tensor:
    """Launch ``stepscope::choose_rows``; vocab_ids counts from 0, so the kernel counts itself."""
    R, V = logits.shape
    out = torch.empty(R, dtype=torch.int64, device=logits.device)
    with torch.cuda.device(logits.device):
        choose[(R,)](  # pyright: ignore[reportIndexIssue]
            out,
            torch.empty_like(logits, memory_format=torch.contiguous_format),
            logits.contiguous(),
            seq_slots,
            positions,
            reals,
            integers,
            token_seen.view(torch.uint8),
            V=V,
            BV=min(SPAN, triton.next_power_of_2(V)),
            num_warps=16,
            **overlap(logits.device),
        )
    return out

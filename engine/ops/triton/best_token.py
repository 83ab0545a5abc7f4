"""The greedy sample on CUDA: the best id of each row, lowest on ties, written to the row's slot. Two launches.

The first finds the best of every span of the vocabulary, the second the best of those. A NaN counts as the greatest
value, as in torch.

Does not: draw. Source: own.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and sizes one by one
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from engine.ops.triton.launch import overlap

SPAN = 2048


@triton.jit
def best_of_spans(value_ptr, id_ptr, logits_ptr, V: tl.constexpr, BV: tl.constexpr, PDL: tl.constexpr):
    """Find the best of span ``program_id(1)`` of row ``program_id(0)``."""
    row = tl.program_id(0)
    span = tl.program_id(1)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    v = span * BV + tl.arange(0, BV)
    logits = tl.load(logits_ptr + row.to(tl.int64) * V + v, mask=v < V, other=float("-inf"))
    logits = tl.where(logits != logits, float("inf"), logits)  # noqa: PLR0124 - only a NaN differs from itself
    best, at = tl.max(logits, axis=0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(value_ptr + row * tl.num_programs(1) + span, best)
    tl.store(id_ptr + row * tl.num_programs(1) + span, span * BV + at)


@triton.jit
def best_of_rows(token_ptr, slot_ptr, value_ptr, id_ptr, SPANS: tl.constexpr, SP: tl.constexpr, PDL: tl.constexpr):
    """Find the best span of row ``program_id(0)`` and write its id to the row's slot."""
    row = tl.program_id(0)
    slot = tl.load(slot_ptr + row)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    s = tl.arange(0, SP)
    values = tl.load(value_ptr + row * SPANS + s, mask=s < SPANS, other=float("-inf"))
    _, at = tl.max(values, axis=0, return_indices=True, return_indices_tie_break_left=True)
    tl.store(token_ptr + slot, tl.load(id_ptr + row * SPANS + at).to(tl.int32))


def best_token_cuda(tokens: torch.Tensor, logits: torch.Tensor, slots: torch.Tensor) -> None:
    """Launch ``stepscope::best_token_``."""
    R, V = logits.shape
    if R == 0:
        return
    spans = triton.cdiv(V, SPAN)
    values = torch.empty(R, spans, dtype=torch.float32, device=logits.device)
    ids = torch.empty(R, spans, dtype=torch.int32, device=logits.device)
    options = overlap(logits.device)
    with torch.cuda.device(logits.device):
        best_of_spans[(R, spans)](  # pyright: ignore[reportIndexIssue]
            values, ids, logits.contiguous(), V=V, BV=SPAN, num_warps=4, **options
        )
        best_of_rows[(R,)](  # pyright: ignore[reportIndexIssue]
            tokens, slots, values, ids, SPANS=spans, SP=triton.next_power_of_2(spans), num_warps=1, **options
        )

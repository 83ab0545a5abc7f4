"""Root-mean-square norm on CUDA, and the sum before it: x = residual + partial sums (+ bias), y = norm(x) * weight.

One program a row. The partial sums are what a product split over K leaves to its reader, so the end of the product, the
residual stream and its norm are one launch. Beside it, the activation of a feed-forward block of many rows.

Does not: multiply by matrices. Source: own.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and sizes one by one
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from engine.ops.triton.launch import overlap


@triton.jit
def norm_rows(
    out_ptr,
    total_ptr,
    x_ptr,
    partial_ptr,
    bias_ptr,
    weight_ptr,
    eps,
    rows,
    M: tl.constexpr,
    MP: tl.constexpr,
    SPLITS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Norm row ``program_id(0)`` of x. SPLITS > 0: of x plus partial sums [SPLITS, rows, M], stored as total."""
    n = tl.program_id(0)
    m = tl.arange(0, MP)
    inside = m < M
    weight = tl.load(weight_ptr + m, mask=inside, other=0.0).to(tl.float32)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    at = n.to(tl.int64) * M + m
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    for split in tl.static_range(SPLITS):
        x += tl.load(partial_ptr + (split * rows) * M + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        x += tl.load(bias_ptr + m, mask=inside, other=0.0).to(tl.float32)
    if SPLITS > 0:
        total = x.to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + at, total, mask=inside)
        x = total.to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / M + eps) * weight
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def activate(out_ptr, gate_up_ptr, F: tl.constexpr, BF: tl.constexpr, PDL: tl.constexpr):
    """Compute silu(gate) * up for BF columns of row ``program_id(0)``, whose gates lie before its ups."""
    n = tl.program_id(0).to(tl.int64)
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    gate = tl.load(gate_up_ptr + n * (2 * F) + f, mask=f < F, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + n * (2 * F) + F + f, mask=f < F, other=0.0).to(tl.float32)
    tl.store(out_ptr + n * F + f, (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty), mask=f < F)


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Norm every row. Shapes: x [N, M] contiguous, weight [M] -> [N, M]."""
    out = torch.empty_like(x)
    return _launch(out, out, x, None, bias=None, weight=weight, eps=eps)


def add_norm(
    residual: torch.Tensor,
    partial: torch.Tensor,
    bias: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add partial sums to the residual, and norm. Shapes: residual [N, M], partial [splits, N, M] -> two of [N, M]."""
    total, out = torch.empty_like(residual), torch.empty_like(residual)
    return total, _launch(out, total, residual, partial, bias=bias, weight=weight, eps=eps)


def _launch(
    out: torch.Tensor,
    total: torch.Tensor,
    x: torch.Tensor,
    partial: torch.Tensor | None,
    *,
    bias: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    N, M = x.shape
    norm_rows[(N,)](  # pyright: ignore[reportIndexIssue]
        out,
        total,
        x,
        x if partial is None else partial,
        x if bias is None else bias,
        weight,
        eps,
        N,
        M=M,
        MP=triton.next_power_of_2(M),
        SPLITS=0 if partial is None else partial.shape[0],
        HAS_BIAS=bias is not None,
        num_warps=4 if M <= 1024 else 8 if M <= 2048 or N == 1 else 32,
        **overlap(x.device),
    )
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Compute silu(gate) * up. Shapes: gate_up [N, 2F] contiguous, gates first -> [N, F]."""
    N, F = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(N, F, dtype=gate_up.dtype, device=gate_up.device)
    activate[(N, triton.cdiv(F, 1024))](  # pyright: ignore[reportIndexIssue]
        out, gate_up, F=F, BF=1024, num_warps=4, **overlap(out.device)
    )
    return out

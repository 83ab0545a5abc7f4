"""The residual stream's step as one op: total = residual + x W^T (+ bias), and its norm, which the next product wants.

    stepscope::linear_add_norm(x, weight, bias, residual, *, norm, eps) -> (total, normed)

On CUDA the product of few rows is split over its input width, and one launch adds the parts, the residual and the bias
and norms the sum (``ops/triton/products.py``).

Does not: know layers. Source: own; a fused add and norm is common practice.
"""

from typing import Final

import torch
from torch.nn import functional

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define(
    "linear_add_norm(Tensor x, Tensor weight, Tensor? bias, Tensor residual, *, Tensor norm, float eps) "
    "-> (Tensor, Tensor)"
)


def linear_add_norm_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor,
    *,
    norm: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Say what the op computes. Shapes: x [N, in], weight [M, in], bias, norm [M], residual [N, M] -> two of [N, M]."""
    total = functional.linear(x, weight, bias) + residual
    return total, functional.rms_norm(total, norm.shape, norm, eps)


def _fake(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor,
    *,
    norm: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(residual.shape), x.new_empty(residual.shape)


def _cuda(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor,
    *,
    norm: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    from engine.ops.triton.products import linear_add_norm_cuda

    return linear_add_norm_cuda(x, weight, bias, residual, norm_weight=norm, eps=eps)


LIBRARY.impl("linear_add_norm", linear_add_norm_reference, "CPU")
LIBRARY.impl("linear_add_norm", _cuda, "CUDA")
LIBRARY.impl("linear_add_norm", _fake, "Meta")

linear_add_norm = torch.ops.stepscope.linear_add_norm.default

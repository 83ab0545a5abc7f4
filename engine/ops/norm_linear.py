"""y = norm(x) W^T (+ bias) (+ residual), the norm optional: a decode step's product with what surrounds it, one op.

    stepscope::norm_linear(x, weight, bias=None, residual=None, *, norm=None, eps=0.0, is_wide=False) -> y

On CUDA a product of few rows is one launch (``ops/triton/products.py``). is_wide: y is float32 whatever x is, as logits
are.

Does not: choose the layouts that suit a CPU: ``linear.py`` and ``rms_norm.py`` do, and the CPU kernel here is the
reference. Source: own.
"""

from typing import Final

import torch
from torch.nn import functional

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define(
    "norm_linear(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None, *, Tensor? norm=None, "
    "float eps=0.0, bool is_wide=False) -> Tensor"
)


def norm_linear_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    norm: torch.Tensor | None = None,
    eps: float = 0.0,
    is_wide: bool = False,
) -> torch.Tensor:
    """Say what the op computes.

    Shapes: x [N, in], norm [in], weight [out, in], bias [out], residual [N, out] -> [N, out].
    """
    if norm is not None:
        x = functional.rms_norm(x, norm.shape, norm, eps)
    y = functional.linear(x, weight, bias)
    y = y if residual is None else y + residual
    return y.float() if is_wide else y


def _fake(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    norm: torch.Tensor | None = None,
    eps: float = 0.0,
    is_wide: bool = False,
) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[0], dtype=torch.float32 if is_wide else x.dtype)


def _cuda(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    norm: torch.Tensor | None = None,
    eps: float = 0.0,
    is_wide: bool = False,
) -> torch.Tensor:
    from engine.ops.triton.products import norm_linear_cuda

    return norm_linear_cuda(x, weight, bias, residual, norm_weight=norm, eps=eps, is_wide=is_wide)


LIBRARY.impl("norm_linear", norm_linear_reference, "CPU")
LIBRARY.impl("norm_linear", _cuda, "CUDA")
LIBRARY.impl("norm_linear", _fake, "Meta")

norm_linear = torch.ops.stepscope.norm_linear.default

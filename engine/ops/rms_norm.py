"""y = x / sqrt(mean(x^2) + eps) * weight, a row at a time.

On CPU ``torch.rms_norm`` is a composite of six small operations; for the few rows of a decode step their dispatch costs
several times the arithmetic (45 us a call against 9, twice a layer). Few float32 rows therefore go through numpy, which
sees the same memory; many rows, other types and CUDA take torch's own.

    stepscope::rms_norm(x, weight, eps) -> y          and .out, which writes into y

Does not: add a residual. Source: own measurements (LOG.md).
"""

import functools
import math
from typing import Final

import numpy as np
import torch
from torch.nn import functional

from engine.ops.host_kernels import bind_host_kernel

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor")
LIBRARY.define("rms_norm.out(Tensor x, Tensor weight, float eps, *, Tensor(a!) out) -> Tensor(a!)")

FEW_ROWS: Final = 32


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Say what the op computes. Shapes: x [N, M], weight [M] -> [N, M]."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def _rms_norm_out(x: torch.Tensor, weight: torch.Tensor, eps: float, *, out: torch.Tensor) -> torch.Tensor:
    if x.is_cuda or x.dtype is not torch.float32 or x.shape[0] > FEW_ROWS:
        return out.copy_(rms_norm_reference(x, weight, eps))
    if x.shape[0] == 1:
        row, scaled = x[0].numpy(), out[0].numpy()
        np.multiply(row, 1.0 / math.sqrt(float(row.dot(row)) / len(row) + eps), out=scaled)
        np.multiply(scaled, weight.numpy(), out=scaled)
        return out
    width = x.shape[-1]
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).mul_(width**-0.5)  # the root mean square, without eps
    torch.div(x, torch.hypot(length, _constant(math.sqrt(eps))), out=out)
    return out.mul_(weight)


@functools.cache
def _constant(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float32)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    if x.is_cuda:
        return rms_norm_reference(x, weight, eps)
    return _rms_norm_out(x, weight, eps, out=torch.empty_like(x, memory_format=torch.contiguous_format))


def _rms_norm_fake(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _rms_norm_out_fake(x: torch.Tensor, weight: torch.Tensor, eps: float, *, out: torch.Tensor) -> torch.Tensor:
    return out


for key in ("CPU", "CUDA"):
    LIBRARY.impl("rms_norm", _rms_norm, key)
    LIBRARY.impl("rms_norm.out", _rms_norm_out, key)
LIBRARY.impl("rms_norm", _rms_norm_fake, "Meta")
LIBRARY.impl("rms_norm.out", _rms_norm_out_fake, "Meta")

bind_host_kernel("rms_norm", _rms_norm)
bind_host_kernel("rms_norm.out", _rms_norm_out)

rms_norm = torch.ops.stepscope.rms_norm.default

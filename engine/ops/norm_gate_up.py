"""The first half of a feed-forward block as one op: silu(gate(norm(x))) * up(norm(x)), the norm optional.

    stepscope::norm_gate_up(x, gate_up, *, norm=None, eps=0.0) -> hidden

On CUDA it is one launch for few rows (``ops/triton/products.py``).

Does not: know biases; the CPU's own whole block is ``gated_mlp.py``. Source: SwiGLU as in the Llama architecture.
"""

from typing import Final

import torch
from torch.nn import functional

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define("norm_gate_up(Tensor x, Tensor gate_up, *, Tensor? norm=None, float eps=0.0) -> Tensor")


def norm_gate_up_reference(
    x: torch.Tensor, gate_up: torch.Tensor, *, norm: torch.Tensor | None = None, eps: float = 0.0
) -> torch.Tensor:
    """Say what the op computes. Shapes: x [N, M], norm [M], gate_up [2F, M], gates first -> [N, F]."""
    if norm is not None:
        x = functional.rms_norm(x, norm.shape, norm, eps)
    gate, up = functional.linear(x, gate_up).chunk(2, dim=-1)
    return functional.silu(gate) * up


def _fake(
    x: torch.Tensor, gate_up: torch.Tensor, *, norm: torch.Tensor | None = None, eps: float = 0.0
) -> torch.Tensor:
    return x.new_empty(x.shape[0], gate_up.shape[0] // 2)


def _cuda(
    x: torch.Tensor, gate_up: torch.Tensor, *, norm: torch.Tensor | None = None, eps: float = 0.0
) -> torch.Tensor:
    from engine.ops.triton.products import norm_gate_up_cuda

    return norm_gate_up_cuda(x, gate_up, norm_weight=norm, eps=eps)


LIBRARY.impl("norm_gate_up", norm_gate_up_reference, "CPU")
LIBRARY.impl("norm_gate_up", _cuda, "CUDA")
LIBRARY.impl("norm_gate_up", _fake, "Meta")

norm_gate_up = torch.ops.stepscope.norm_gate_up.default

"""The feed-forward block as one op: y = residual + down(silu(gate(x)) * up(x)), gate and up in one matrix.

On CPU the two products take whichever layout suits the number of rows (see ``linear.py``), and the activation runs in
place between them: one dispatch instead of nine.

    stepscope::gated_mlp(x, gate_up, down, residual=None) -> y               and .out, which writes into y

Does not: know biases (no architecture served here has them in its MLP), experts or adapters.
Source: SwiGLU as in the Llama architecture; the layout is our own.
"""

from typing import Final

import torch
from torch.nn import functional

from engine.ops.host_kernels import bind_host_kernel
from engine.ops.linear import as_parts, linear_into, multiply_columns, multiply_parts, packed_layout, uses_columns

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define("gated_mlp(Tensor x, Tensor gate_up, Tensor down, Tensor? residual=None) -> Tensor")
LIBRARY.define(
    "gated_mlp.out(Tensor x, Tensor gate_up, Tensor down, Tensor? residual=None, *, Tensor(a!) out) -> Tensor(a!)"
)


def gated_mlp_reference(
    x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """Say what the op computes. Shapes: x [N, M], gate_up [2F, M], down [M, F], residual [N, M] -> [N, M]."""
    gate, up = functional.linear(x, gate_up).chunk(2, dim=-1)
    y = functional.linear(functional.silu(gate) * up, down)
    return y if residual is None else y + residual


def _gated_mlp_out(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    if not uses_columns(gate_up):
        return out.copy_(gated_mlp_reference(x, gate_up, down, residual))
    packed = packed_layout(gate_up, x.shape[0])
    if packed is not None and len(packed) % 2 == 0:
        gate, up = multiply_parts(x, packed).chunk(2)  # [P / 2, N, W] each
        hidden = x.new_empty(x.shape[0], down.shape[1])
        torch.mul(functional.silu(gate, inplace=True), up, out=as_parts(hidden, packed.shape[2]))
        return linear_into(hidden, down, None, residual, out=out)
    gate, up = multiply_columns(x, gate_up).chunk(2)  # [F, N] each
    hidden = functional.silu(gate).mul_(up).t().contiguous()
    return linear_into(hidden, down, None, residual, out=out)


def _gated_mlp(
    x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, residual: torch.Tensor | None = None
) -> torch.Tensor:
    if not uses_columns(gate_up):
        return gated_mlp_reference(x, gate_up, down, residual)
    return _gated_mlp_out(x, gate_up, down, residual, out=x.new_empty(x.shape[0], down.shape[0]))


def _gated_mlp_fake(
    x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, residual: torch.Tensor | None = None
) -> torch.Tensor:
    return x.new_empty(x.shape[0], down.shape[0])


def _gated_mlp_out_fake(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    return out


for key in ("CPU", "CUDA"):
    LIBRARY.impl("gated_mlp", _gated_mlp, key)
    LIBRARY.impl("gated_mlp.out", _gated_mlp_out, key)
LIBRARY.impl("gated_mlp", _gated_mlp_fake, "Meta")
LIBRARY.impl("gated_mlp.out", _gated_mlp_out_fake, "Meta")

bind_host_kernel("gated_mlp", _gated_mlp)
bind_host_kernel("gated_mlp.out", _gated_mlp_out)

gated_mlp = torch.ops.stepscope.gated_mlp.default

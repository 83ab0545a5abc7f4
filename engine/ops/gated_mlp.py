"""The feed-forward block as one op: y = residual + down(silu(gate(x)) * up(x)), gate and up in one matrix.

On CPU the two products take whichever layout suits the number of rows (see ``linear.py``), and the activation runs in
place between them: one dispatch instead of nine.

    stepscope::gated_mlp(x, gate_up, down, residual=None) -> y               and .out, which writes into y

Does not: know biases (no architecture served here has them in its MLP), experts or adapters.
Source: SwiGLU as in the Llama architecture; the layout is our own.
"""

import functools
from collections.abc import Callable
from typing import Final

import torch
from torch.nn import functional

from engine.ops.host_kernels import bind_host_kernel
from engine.ops.linear import as_parts, fix_linear, multiply_columns, packed_layout, spread_over, uses_columns

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


def fix_gated_mlp(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    out: torch.Tensor,
) -> Callable[[], torch.Tensor]:
    """Return a call that writes the op's result into out; out and residual are contiguous, and may be one tensor."""
    num_rows, width = x.shape[0], down.shape[1]
    packed = packed_layout(gate_up, num_rows)
    if not uses_columns(gate_up) or (num_rows > 1 and (packed is None or len(packed) % 2)):
        return functools.partial(_gated_mlp_plainly, x, gate_up, down, residual, out)
    hidden = x.new_empty(num_rows, width)
    if packed is None:
        both = x.new_empty(1, 2 * width)
        (gate, up), product = both.chunk(2, dim=-1), hidden
        multiply = fix_linear(x, gate_up, out=both)
    else:
        both = x.new_empty(packed.shape[0], num_rows, packed.shape[2])
        (gate, up), product = both.chunk(2), as_parts(hidden, packed.shape[2])
        multiply = functools.partial(torch.bmm, spread_over(x, packed), packed, out=both)
    multiply_down = fix_linear(hidden, down, None, residual, out=out)

    def run() -> torch.Tensor:
        multiply()
        torch.mul(functional.silu(gate, inplace=True), up, out=product)
        return multiply_down()

    return run


def _gated_mlp_plainly(
    x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, residual: torch.Tensor | None, out: torch.Tensor
) -> torch.Tensor:
    if not uses_columns(gate_up):
        return out.copy_(gated_mlp_reference(x, gate_up, down, residual))
    gate, up = multiply_columns(x, gate_up).chunk(2)  # [F, N] each
    hidden = functional.silu(gate).mul_(up).t().contiguous()
    return fix_linear(hidden, down, None, residual, out=out)()


def _gated_mlp_out(
    x: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    fix_gated_mlp(x, gate_up, down, residual, out=out)()
    return out


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
bind_host_kernel("gated_mlp.out", _gated_mlp_out, fix_gated_mlp)

gated_mlp = torch.ops.stepscope.gated_mlp.default

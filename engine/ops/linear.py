"""y = x W^T (+ bias) (+ residual) over [out, in] weights, fast for a decode step on CPU.

A decode step multiplies 1 to 8 rows by every weight of the model, so it is bound by how fast weights stream from
memory. The same product runs at very different speeds, depending on which operand the BLAS sees as the long one.
Gigabytes of weight read per second, weights cold (gate_up and down of SmolLM2-135M, 3072 x 576 and 576 x 1536, and its
LM head, 49152 x 576, all float32; two AVX2 cores, torch 2.13, MKL):

                                     gate_up              down               LM head
    rows of x                     1     4     8       1     4     8       1     4     8
    F.linear(x, W)             14.0   6.4   8.9    19.0     -  10.4    14.0     -   6.5
    mm(W, x.t())               14.2  21.6  12.9    19.2  17.4  11.4    14.2  22.5  13.0
    bmm(W in 2 parts, x)       27.2     -  12.8    26.7     -  11.5    29.0     -  13.2
    oneDNN, packed weights     29.0  21.2  17.6    22.8  15.8  13.6    29.3  23.0  17.9

Hence the table that ``uses_columns``, ``multiply_columns`` and ``packed_layout`` hold, fixed and never timed.
With MKL and float32 a product is ``mm(W, x.t())``, whose result is [out, rows]; MKL runs matrix times vector on one
thread whatever it is given, so for one row the weight is multiplied as a batch of as many parts as there are threads.
A weight that ``pack`` was called for (the engine asks when its batches are wide enough) also has oneDNN's layout, taken
from FEWEST_PACKED_ROWS up to MOST_PACKED_ROWS, where it pays. Everything else (bfloat16, CUDA, a BLAS other than MKL)
takes ``F.linear``.

    stepscope::linear(x, weight, bias=None, residual=None) -> y          and .out, which writes into y

Does not: quantise or own weights. Source: own measurements (LOG.md).
"""

import math
from typing import Final

import torch
from torch.nn import functional

from engine.ops.host_kernels import bind_host_kernel

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define("linear(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None) -> Tensor")
LIBRARY.define(
    "linear.out(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None, *, Tensor(a!) out) -> Tensor(a!)"
)

HAS_MKL: Final = torch.backends.mkl.is_available()
_PACKED: Final = "stepscope_packed_layout"


FEWEST_PACKED_ROWS: Final = 5
MOST_PACKED_ROWS: Final = 64


def pack(weight: torch.Tensor) -> None:
    """Give a weight its oneDNN layout too, opaque to everybody else; a no-op where columns are not used.

    The layout travels as an attribute of the tensor object, so that the op's arguments stay plain device memory.
    """
    if uses_columns(weight) and torch.backends.mkldnn.is_available():
        tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 8)  # noqa: SLF001 torch has no public name
        setattr(weight, _PACKED, tensor)


def packed_layout(weight: torch.Tensor, num_rows: int) -> torch.Tensor | None:
    """Return the packed weight if this many rows should be multiplied by it."""
    return getattr(weight, _PACKED, None) if FEWEST_PACKED_ROWS <= num_rows <= MOST_PACKED_ROWS else None


def multiply_packed(
    x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """Shapes: x [N, in], packed for [out, in], residual [N, out] -> [N, out]."""
    op = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001 likewise
    if residual is None:
        return op.default(x, packed, bias, "none", [], "")
    return op.binary(x, residual, packed, bias, "add")


def uses_columns(weight: torch.Tensor) -> bool:
    """Whether this weight is multiplied as ``mm(W, x.t())``: fixed per machine and dtype, never timed."""
    return HAS_MKL and weight.dtype is torch.float32 and not weight.is_cuda


def multiply_columns(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Shapes: x [N, in], weight [out, in] -> [out, N]: the product, one column a row of x."""
    if x.shape[0] == 1:
        return one_row_into(x, weight, x.new_empty(1, weight.shape[0])).view(-1, 1)
    return torch.mm(weight, x.t())


def one_row_into(
    x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply one row, as many parts of the weight at once as there are threads; write into out and return it.

    Shapes: x [1, in], weight [out, in], residual and out [1, out], contiguous; out may be the residual.
    """
    parts = math.gcd(weight.shape[0], torch.get_num_threads())
    width, length = x.shape[1], weight.shape[0] // parts
    # The stride of the one-column axis decides MKL's path although nothing is there to step over: K is fast, 1 is
    # four times slower, and a transposed [K, 1] result passes for contiguous with stride 1.
    column = x.as_strided((parts, width, 1), (0, x.stride(1), width))
    halves, target = weight.view(parts, length, width), out.view(parts, length, 1)
    if residual is None:
        torch.bmm(halves, column, out=target)
    else:
        torch.baddbmm(residual.view(parts, length, 1), halves, column, out=target)
    return out


def linear_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """Say what the op computes. Shapes: x [N, in], weight [out, in], bias [out], residual [N, out] -> [N, out]."""
    y = functional.linear(x, weight, bias)
    return y if residual is None else y + residual


def _linear_out(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    if not uses_columns(weight):
        return out.copy_(linear_reference(x, weight, bias, residual))
    if x.shape[0] == 1 and bias is None:
        return one_row_into(x, weight, out, residual)
    packed = packed_layout(weight, x.shape[0])
    if packed is not None:
        return out.copy_(multiply_packed(x, packed, bias, residual))
    rows = multiply_columns(x, weight).t()
    rows = rows if bias is None else rows + bias
    return out.copy_(rows) if residual is None else torch.add(rows, residual, out=out)


def _linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    if not uses_columns(weight):
        return linear_reference(x, weight, bias, residual)
    packed = packed_layout(weight, x.shape[0])
    if packed is not None:
        return multiply_packed(x, packed, bias, residual)
    return _linear_out(x, weight, bias, residual, out=x.new_empty(x.shape[0], weight.shape[0]))


def _linear_fake(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def _linear_out_fake(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    return out


for key in ("CPU", "CUDA"):
    LIBRARY.impl("linear", _linear, key)
    LIBRARY.impl("linear.out", _linear_out, key)
LIBRARY.impl("linear", _linear_fake, "Meta")
LIBRARY.impl("linear.out", _linear_out_fake, "Meta")

bind_host_kernel("linear", _linear)
bind_host_kernel("linear.out", _linear_out)

linear = torch.ops.stepscope.linear.default

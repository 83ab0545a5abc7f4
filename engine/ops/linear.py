"""y = x W^T (+ bias) (+ residual) over float32 weights kept in one layout, [out, in], fast for a decode step on CPU.

A decode step multiplies 1 to 8 rows by every weight of the model, so it is bound by how fast weights stream from
memory. The same product runs at very different speeds, depending on which operand the BLAS sees as the long one.
Gigabytes of weight read per second (gate_up of SmolLM2-135M, 3072 x 576 float32; two AVX2 cores, torch 2.13, MKL):

    rows of x                        1     2     4     8    64
    F.linear(x, W)                14.3   8.3   6.4   9.1   3.4
    x @ Wt, Wt stored [in, out]   21.1  13.7   7.8   9.6    -
    mm(W, x.t())                  14.5  22.9  22.2  13.3   4.3
    bmm(W in 2 parts, x)          28.3     -     -  13.2     -
    oneDNN, packed weights        23.8  23.0  19.7  16.7   4.1

Hence the table that ``uses_columns`` and ``multiply_columns`` hold: with MKL and float32 every product is
``mm(W, x.t())``, whose result is [out, rows]. MKL runs its matrix-vector product, and F.linear up to 8 rows, on one
thread whatever it is given; so for one row the weight is multiplied as a batch of as many parts as there are threads.
No weight needs a second layout, not even the LM head. oneDNN's packing is a fifth faster at 8 rows, but it is opaque,
would double the weights, and loses at 4. Everything else (bfloat16, CUDA, a BLAS other than MKL) takes ``F.linear``.

    stepscope::linear(x, weight, bias=None, residual=None) -> y          and .out, which writes into y

Does not: quantise, pack or own weights; time anything at run time.
Source: own measurements (LOG.md).
"""

import math
from typing import Final

import torch
from torch.nn import functional

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define("linear(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None) -> Tensor")
LIBRARY.define(
    "linear.out(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None, *, Tensor(a!) out) -> Tensor(a!)"
)

HAS_MKL: Final = torch.backends.mkl.is_available()


def uses_columns(weight: torch.Tensor) -> bool:
    """Whether this weight is multiplied as ``mm(W, x.t())``: fixed per machine and dtype, never timed."""
    return HAS_MKL and weight.dtype is torch.float32 and not weight.is_cuda


def multiply_columns(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Shapes: x [N, in], weight [out, in] -> [out, N]: the product, one column a row of x."""
    parts = math.gcd(weight.shape[0], torch.get_num_threads())
    if x.shape[0] == 1 and parts > 1:
        column = x.t().expand(parts, -1, 1)
        return torch.bmm(weight.unflatten(0, (parts, -1)), column).view(-1, 1)
    return torch.mm(weight, x.t())


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
    rows = multiply_columns(x, weight).t()
    if bias is not None:
        rows = rows + bias
    return out.copy_(rows) if residual is None else torch.add(rows, residual, out=out)


def _linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    if not uses_columns(weight):
        return linear_reference(x, weight, bias, residual)
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

linear = torch.ops.stepscope.linear.default

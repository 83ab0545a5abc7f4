"""y = x W^T (+ bias) (+ residual) over [out, in] weights, fast for a decode step on CPU.

A decode step multiplies 1 to 8 rows by every weight of the model, so it is bound by how fast weights stream from
memory. The same product runs at very different speeds, depending on which operand the BLAS sees as the long one.
Gigabytes of weight read per second, weights cold (gate_up and down of SmolLM2-135M, 3072 x 576 and 576 x 1536, and its
LM head, 49152 x 576, all float32; two AVX2 cores, torch 2.13, MKL):

                                     gate_up              down               LM head
    rows of x                     1     4     8       1     4     8       1     4     8
    F.linear(x, W)             14.0   6.4   8.9    19.0     -  10.4    14.0     -   6.5
    mm(W, x.t())               14.2  21.6  13.2    19.2  17.4  12.1    14.2  22.5  12.8
    bmm(W in 2 parts, x)       27.2     -  12.8    26.7     -  11.5    29.0     -  13.2
    bmm(x, W packed in parts)     -  18.7  16.6       -  18.6  16.5       -  18.4  16.1
    convolution over W            -  18.7  19.0       -  15.4  15.4       -     -  23.5
    oneDNN, packed weights     29.0  21.2  17.6    22.8  15.8  14.2    29.3  23.0  18.0
    oneDNN, convolution layout    -  24.9  20.3       -  21.6  17.3       -     -  21.8

Hence the table that ``uses_columns``, ``multiply_columns`` and ``packed_layout`` hold, fixed and never timed.
With MKL and float32 a product is ``mm(W, x.t())``, whose result is [out, rows]; MKL runs matrix times vector on one
thread whatever it is given, so for one row the weight is multiplied as a batch of as many parts as there are threads.
A weight that ``pack`` was called for (the engine asks when its batches are wide enough) also lies as parts of a few
columns, multiplied as a batch from FEWEST_PACKED_ROWS to MOST_PACKED_ROWS. oneDNN's layouts are faster alone and slower
inside a step: its calls cost 25 to 40 us whatever their size, and more when weights have just swept its code out of the
caches. The exceptions are weights of a vocabulary's length and more rows, where a weight is convolved as it lies, its
rows being the pixels of an image. Everything else (bfloat16, CUDA, a BLAS other than MKL) takes ``F.linear``.

    stepscope::linear(x, weight, bias=None, residual=None) -> y          and .out, which writes into y

Does not: quantise or own weights. Source: own measurements (LOG.md).
"""

import functools
import math
from collections.abc import Callable
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
MOST_PACKED_ROWS: Final = 8
MOST_IMAGE_ROWS: Final = 64
MOST_PACKED_LENGTH: Final = 16384  # a longer weight is faster as an image
_PART_WIDTHS: Final = (96, 64, 48, 32)


def pack(weight: torch.Tensor) -> None:
    """Give a weight its second layout, parts [P, in, out / P]; a no-op where another way is faster.

    The layout travels as an attribute of the tensor object, so that the op's arguments stay plain device memory.
    """
    length, width = weight.shape
    parts = [length // part for part in _PART_WIDTHS if length % part == 0]
    if parts and uses_columns(weight) and length <= MOST_PACKED_LENGTH:
        setattr(weight, _PACKED, weight.detach().view(parts[0], -1, width).transpose(1, 2).contiguous())


def packed_layout(weight: torch.Tensor, num_rows: int) -> torch.Tensor | None:
    """Return the packed weight if this many rows should be multiplied by it."""
    return getattr(weight, _PACKED, None) if FEWEST_PACKED_ROWS <= num_rows <= MOST_PACKED_ROWS else None


def spread_over(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """View x as what a batched product with packed takes. Shapes: x [N, in], packed [P, in, W] -> [P, N, in]."""
    return x.expand(packed.shape[0], *x.shape)


def as_parts(rows: torch.Tensor, part: int) -> torch.Tensor:
    """View contiguous rows as products by parts are ordered. Shapes: [N, P W] -> [P, N, W]."""
    num_rows, width = rows.shape
    return rows.as_strided((width // part, num_rows, part), (part, width, 1))


def uses_columns(weight: torch.Tensor) -> bool:
    """Whether this weight is multiplied as ``mm(W, x.t())``: fixed per machine and dtype, never timed."""
    return HAS_MKL and weight.dtype is torch.float32 and not weight.is_cuda


def multiply_columns(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Shapes: x [N, in], weight [out, in] -> [out, N]: the product, one column a row of x."""
    if x.shape[0] == 1:
        return _one_row(x, weight, None, x.new_empty(1, weight.shape[0]))().view(-1, 1)
    if not FEWEST_PACKED_ROWS <= x.shape[0] <= MOST_IMAGE_ROWS or not torch.backends.mkldnn.is_available():
        return torch.mm(weight, x.t())
    length, width = weight.shape
    image = weight.view(1, length, 1, width).permute(0, 3, 1, 2)  # a row of the weight is a pixel
    kernel = x.contiguous().view(*x.shape, 1, 1)
    convolve = torch.ops.mkldnn._convolution_pointwise.default  # noqa: SLF001 torch has no public name
    product = convolve(image, kernel, None, (0, 0), (1, 1), (1, 1), 1, "none", (), "")
    return product.permute(0, 2, 3, 1).view(length, -1)


def _one_row(
    x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None, out: torch.Tensor
) -> Callable[[], torch.Tensor]:
    """Multiply one row, as many parts of the weight at once as there are threads."""
    parts = math.gcd(weight.shape[0], torch.get_num_threads())
    width, length = x.shape[1], weight.shape[0] // parts
    # The stride of the one-column axis decides MKL's path although nothing is there to step over: K is fast, 1 is
    # four times slower, and a transposed [K, 1] result passes for contiguous with stride 1.
    column = x.as_strided((parts, width, 1), (0, x.stride(1), width))
    halves, target = weight.view(parts, length, width), out.view(parts, length, 1)
    if residual is None:
        return lambda: torch.bmm(halves, column, out=target)
    source = residual.view(parts, length, 1)
    return lambda: torch.baddbmm(source, halves, column, out=target)


def _by_parts(
    x: torch.Tensor, packed: torch.Tensor, residual: torch.Tensor | None, out: torch.Tensor
) -> Callable[[], torch.Tensor]:
    spread, target = spread_over(x, packed), as_parts(out, packed.shape[2])
    if residual is None:
        return lambda: target.copy_(torch.bmm(spread, packed))
    source = as_parts(residual, packed.shape[2])
    return lambda: torch.add(torch.bmm(spread, packed), source, out=target)


def linear_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """Say what the op computes. Shapes: x [N, in], weight [out, in], bias [out], residual [N, out] -> [N, out]."""
    y = functional.linear(x, weight, bias)
    return y if residual is None else y + residual


def fix_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    out: torch.Tensor,
) -> Callable[[], torch.Tensor]:
    """Return a call that writes the op's result into out; out and residual are contiguous, and may be one tensor."""
    if bias is None and uses_columns(weight):
        packed = packed_layout(weight, x.shape[0])
        if x.shape[0] == 1:
            return _one_row(x, weight, residual, out)
        if packed is not None:
            return _by_parts(x, packed, residual, out)
    return functools.partial(_linear_plainly, x, weight, bias, residual, out)


def _linear_plainly(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    out: torch.Tensor,
) -> torch.Tensor:
    if not uses_columns(weight):
        return out.copy_(linear_reference(x, weight, bias, residual))
    packed = packed_layout(weight, x.shape[0])
    if packed is not None:
        _by_parts(x, packed, residual, out)()
        return out if bias is None else out.add_(bias)
    rows = multiply_columns(x, weight).t()
    rows = rows if bias is None else rows + bias
    return out.copy_(rows) if residual is None else torch.add(rows, residual, out=out)


def _linear_out(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    fix_linear(x, weight, bias, residual, out=out)()
    return out


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

bind_host_kernel("linear", _linear)
bind_host_kernel("linear.out", _linear_out, fix_linear)

linear = torch.ops.stepscope.linear.default

"""The CUDA kernels of the ops between two attentions: which launches a product takes, by its number of rows.

One row goes to ``row_product.py``, norm included; up to MOST_ROWS of a two-byte type to ``streamed_product.py`` where
the weight is large and the chip a Hopper, else to ``tile_product.py``; more rows, several float32 ones, and devices
with too little shared memory for tiles, to cuBLAS, with our norms and activation around it. One fixed table; nothing is
timed at run.

Does not: define the ops (``ops/norm_linear.py``, ``ops/norm_gate_up.py``, ``ops/linear_add_norm.py``).
Source: own; measurements in LOG.md.
"""

import torch
from torch.nn import functional

from engine.ops.triton.launch import holds_large_tiles
from engine.ops.triton.norms import add_norm, norm, silu_mul
from engine.ops.triton.row_product import row_product
from engine.ops.triton.streamed_product import can_stream, split_product, whole_product
from engine.ops.triton.tile_product import MOST_ROWS, partial_product, tile_product


def _fits_tiles(x: torch.Tensor) -> bool:
    return x.shape[0] <= MOST_ROWS and x.element_size() == 2 and holds_large_tiles(x.device)


def norm_linear_cuda(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    norm_weight: torch.Tensor | None = None,
    eps: float = 0.0,
    is_wide: bool = False,
) -> torch.Tensor:
    """Launch ``stepscope::norm_linear``."""
    x, dtype = x.contiguous(), torch.float32 if is_wide else x.dtype
    with torch.cuda.device(x.device):
        out = torch.empty(x.shape[0], weight.shape[0], dtype=dtype, device=x.device)
        if x.shape[0] == 1:
            return row_product(out, x, weight, norm=norm_weight, eps=eps, bias=bias, residual=residual)
        if norm_weight is not None:
            x = norm(x, norm_weight, eps)
        if can_stream(x, weight):
            return whole_product(out, x, weight, bias=bias, residual=residual)
        if _fits_tiles(x):
            return tile_product(out, x, weight, bias=bias, residual=residual)
        y = functional.linear(x, weight, bias).to(dtype)
        return y if residual is None else y.add_(residual)


def norm_gate_up_cuda(
    x: torch.Tensor, gate_up: torch.Tensor, *, norm_weight: torch.Tensor | None = None, eps: float = 0.0
) -> torch.Tensor:
    """Launch ``stepscope::norm_gate_up``."""
    x = x.contiguous()
    with torch.cuda.device(x.device):
        out = torch.empty(x.shape[0], gate_up.shape[0] // 2, dtype=x.dtype, device=x.device)
        if x.shape[0] == 1:
            return row_product(out, x, gate_up, norm=norm_weight, eps=eps, is_gated=True)
        if norm_weight is not None:
            x = norm(x, norm_weight, eps)
        if can_stream(x, gate_up):
            return whole_product(out, x, gate_up, is_gated=True)
        if _fits_tiles(x):
            return tile_product(out, x, gate_up, is_gated=True)
        return silu_mul(functional.linear(x, gate_up))


def linear_add_norm_cuda(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor,
    *,
    norm_weight: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch ``stepscope::linear_add_norm``."""
    x, residual = x.contiguous(), residual.contiguous()
    with torch.cuda.device(x.device):
        if x.shape[0] == 1:
            total = row_product(torch.empty_like(residual), x, weight, bias=bias, residual=residual)
            return total, norm(total, norm_weight, eps)
        if can_stream(x, weight):
            return add_norm(residual, split_product(x, weight), bias, norm_weight, eps)
        if _fits_tiles(x):
            return add_norm(residual, partial_product(x, weight), bias, norm_weight, eps)
        return add_norm(residual, functional.linear(x, weight).unsqueeze(0), bias, norm_weight, eps)

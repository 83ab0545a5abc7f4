"""The product with its norm, bias and residual: what it computes, and its shape without computing."""

import pytest
import torch
from torch.nn import functional

from engine.ops.norm_linear import norm_linear


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_each_part_is_optional(rows):
    x, weight, bias, residual, norm = (torch.randn(*s) for s in ((rows, 6), (4, 6), (4,), (rows, 4), (6,)))
    normed = x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt() * norm
    torch.testing.assert_close(norm_linear(x, weight), x @ weight.T)
    torch.testing.assert_close(norm_linear(x, weight, bias, residual), x @ weight.T + bias + residual)
    torch.testing.assert_close(
        norm_linear(x, weight, None, residual, norm=norm, eps=1e-5), normed @ weight.T + residual
    )


def test_a_wide_result_is_float32_with_the_same_values():
    x, weight = torch.randn(2, 8).bfloat16(), torch.randn(3, 8).bfloat16()
    wide = norm_linear(x, weight, is_wide=True)
    assert wide.dtype is torch.float32
    torch.testing.assert_close(wide, functional.linear(x, weight).float())


@pytest.mark.parametrize("is_wide", [False, True])
def test_the_shape_is_known_without_computing(is_wide):
    x, weight = (torch.empty(*s, device="meta", dtype=torch.bfloat16) for s in ((5, 8), (3, 8)))
    fake = norm_linear(x, weight, is_wide=is_wide)
    assert (fake.shape, fake.dtype) == ((5, 3), torch.float32 if is_wide else torch.bfloat16)

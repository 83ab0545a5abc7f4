"""The residual stream's step: the sum and its norm, and their shapes without computing."""

import pytest
import torch
from torch.nn import functional

from engine.ops.linear_add_norm import linear_add_norm


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_norm_is_that_of_the_sum(has_bias):
    x, weight, residual, norm = (torch.randn(*s) for s in ((3, 6), (4, 6), (3, 4), (4,)))
    bias = torch.randn(4) if has_bias else None
    total, normed = linear_add_norm(x, weight, bias, residual, norm=norm, eps=1e-5)
    torch.testing.assert_close(total, functional.linear(x, weight, bias) + residual)
    torch.testing.assert_close(normed, functional.rms_norm(total, (4,), norm, 1e-5))


def test_the_shapes_are_known_without_computing():
    x, weight, residual, norm = (torch.empty(*s, device="meta") for s in ((3, 6), (4, 6), (3, 4), (4,)))
    total, normed = linear_add_norm(x, weight, None, residual, norm=norm, eps=1e-5)
    assert total.shape == normed.shape == (3, 4)

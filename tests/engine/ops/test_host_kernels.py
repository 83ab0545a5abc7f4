"""The kernel behind an op is what the dispatcher would have reached."""

import pytest
import torch

from engine.ops import gated_mlp, linear, paged_attention, rms_norm
from engine.ops.host_kernels import host_kernel

OPS = torch.ops.stepscope


@pytest.mark.parametrize(
    "op",
    [
        OPS.linear.default,
        OPS.linear.out,
        OPS.rms_norm.default,
        OPS.rms_norm.out,
        OPS.gated_mlp.default,
        OPS.gated_mlp.out,
        OPS.paged_attention_.default,
    ],
    ids=str,
)
def test_each_cpu_op_of_ours_has_its_kernel(op):
    files = (gated_mlp, linear, paged_attention, rms_norm)
    assert host_kernel(op) in {value for file in files for value in vars(file).values() if callable(value)}


def test_an_op_of_torch_has_none():
    assert host_kernel(torch.ops.aten.mm.default) is None


def test_kernel_and_dispatcher_give_the_same_bits():
    x, weight, residual = torch.randn(3, 16), torch.randn(24, 16), torch.randn(3, 24)
    kernel = host_kernel(OPS.linear.default)
    assert torch.equal(kernel(x, weight, None, residual), OPS.linear.default(x, weight, None, residual))

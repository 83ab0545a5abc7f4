import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.ops import linear as linear_file
from engine.ops.gated_mlp import gated_mlp, gated_mlp_reference


def operands(rows, width=12, inner=20):
    torch.manual_seed(rows)
    gate_up, down = torch.randn(2 * inner, width) * 0.3, torch.randn(width, inner) * 0.3
    return torch.randn(rows, width), gate_up, down, torch.randn(rows, width)


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 40])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("sizes", [None, (12, 20), (32, 96), (64, 16), (12, 48)], ids=str)  # None: not packed
def test_the_block_equals_its_reference(monkeypatch, rows, columns, sizes):
    monkeypatch.setattr(linear_file, "HAS_MKL", columns)
    args = operands(rows, *(sizes or ()))
    if sizes is not None:
        linear_file.pack(args[1])
        linear_file.pack(args[2])
    expected = gated_mlp_reference(*args)
    torch.testing.assert_close(gated_mlp(*args), expected, atol=1e-5, rtol=1e-4)
    out = torch.full_like(args[0], float("nan"))
    torch.ops.stepscope.gated_mlp.out(*args, out=out)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)


def test_without_a_residual_nothing_is_added():
    *args, residual = operands(3)
    torch.testing.assert_close(gated_mlp(*args) + residual, gated_mlp(*args, residual), atol=1e-5, rtol=1e-4)


def test_weights_and_input_are_left_alone():
    args = operands(4)
    copies = [tensor.clone() for tensor in args]
    gated_mlp(*args)
    assert all(torch.equal(a, b) for a, b in zip(args, copies, strict=True))


def test_the_fake_propagates_the_residuals_shape():
    with FakeTensorMode() as mode:
        got = gated_mlp(*(mode.from_tensor(tensor) for tensor in operands(3)))
    assert (got.shape, got.dtype) == ((3, 12), torch.float32)

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.ops import linear as linear_file
from engine.ops.gated_mlp import gated_mlp, gated_mlp_reference


def operands(rows):
    torch.manual_seed(rows)
    return torch.randn(rows, 12), torch.randn(40, 12) * 0.3, torch.randn(12, 20) * 0.3, torch.randn(rows, 12)


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 40])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_the_block_equals_its_reference(monkeypatch, rows, columns, packed):
    monkeypatch.setattr(linear_file, "HAS_MKL", columns)
    args = operands(rows)
    if packed:
        linear_file.pack(args[1])
        linear_file.pack(args[2])
    expected = gated_mlp_reference(*args)
    torch.testing.assert_close(gated_mlp(*args), expected, atol=1e-5, rtol=1e-4)
    out = torch.full((rows, 12), float("nan"))
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

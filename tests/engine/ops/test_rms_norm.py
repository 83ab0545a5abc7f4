"""The norm of a decode step equals torch's, for one row, a few and many."""

import pytest
import torch

from engine.ops.rms_norm import FEW_ROWS, rms_norm, rms_norm_reference

ROWS = [1, 2, 8, FEW_ROWS, FEW_ROWS + 1]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_the_norm_equals_its_reference(rows, scale):
    torch.manual_seed(rows)
    x, weight = torch.randn(rows, 24) * scale + scale, torch.randn(24)
    torch.testing.assert_close(rms_norm(x, weight, 1e-5), rms_norm_reference(x, weight, 1e-5), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", ROWS)
def test_the_out_variant_writes_where_it_is_told_and_nowhere_else(rows):
    x, weight = torch.randn(rows, 24), torch.randn(24)
    before, out = x.clone(), torch.full((rows, 24), float("nan"))
    got = torch.ops.stepscope.rms_norm.out(x, weight, 1e-5, out=out)
    assert got.data_ptr() == out.data_ptr()
    torch.testing.assert_close(out, rms_norm_reference(x, weight, 1e-5), atol=1e-5, rtol=1e-5)
    assert torch.equal(x, before)


@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_zeros_stay_zeros(rows):
    assert not rms_norm(torch.zeros(rows, 24), torch.ones(24), 1e-5).any()


def test_two_byte_floats_take_torchs_own_norm():
    x, weight = torch.randn(2, 24).bfloat16(), torch.randn(24).bfloat16()
    assert torch.equal(rms_norm(x, weight, 1e-5), rms_norm_reference(x, weight, 1e-5))


def test_the_shape_is_known_without_computing():
    fake = rms_norm(torch.empty(3, 24, device="meta"), torch.empty(24, device="meta"), 1e-5)
    assert fake.shape == (3, 24)
    assert fake.device.type == "meta"

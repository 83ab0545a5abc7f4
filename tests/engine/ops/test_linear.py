import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.ops import linear as linear_file
from engine.ops.linear import linear, linear_reference, multiply_columns, uses_columns

ROWS = [1, 2, 3, 8, 33]


def close(got, expected):
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


def operands(rows, out_features=24, in_features=16):
    torch.manual_seed(rows)
    return (
        torch.randn(rows, in_features),
        torch.randn(out_features, in_features),
        torch.randn(out_features),
        torch.randn(rows, out_features),
    )


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_linear_equals_its_reference(monkeypatch, rows, with_bias, with_residual, columns):
    monkeypatch.setattr(linear_file, "HAS_MKL", columns)
    x, weight, bias, residual = operands(rows)
    extras = (bias if with_bias else None, residual if with_residual else None)
    got = linear(x, weight, *extras)
    assert got.is_contiguous()
    close(got, linear_reference(x, weight, *extras))


@pytest.mark.parametrize("rows", ROWS)
def test_the_out_variant_writes_where_it_is_told(rows):
    x, weight, bias, residual = operands(rows)
    out = torch.full((rows, 24), float("nan"))
    got = torch.ops.stepscope.linear.out(x, weight, bias, residual, out=out)
    assert got.data_ptr() == out.data_ptr()
    close(out, linear_reference(x, weight, bias, residual))


def test_the_out_variant_may_write_over_the_residual():
    x, weight, _, residual = operands(4)
    expected = linear_reference(x, weight, None, residual)
    torch.ops.stepscope.linear.out(x, weight, None, residual, out=residual)
    close(residual, expected)


@pytest.mark.parametrize("rows", ROWS)
def test_columns_are_the_product_transposed(rows):
    x, weight, _, _ = operands(rows)
    close(multiply_columns(x, weight), weight @ x.t())


def test_rows_may_be_a_view():
    x, weight, _, _ = operands(8)
    wide = torch.randn(8, 40)
    close(linear(wide[:, 3:19], weight), linear_reference(wide[:, 3:19], weight))
    close(linear(x[1:2], weight), linear_reference(x[1:2], weight))


def test_other_dtypes_take_the_plain_product():
    x, weight, _, _ = operands(2)
    assert not uses_columns(weight.bfloat16())
    got = linear(x.bfloat16(), weight.bfloat16())
    assert got.dtype is torch.bfloat16
    torch.testing.assert_close(got.float(), linear_reference(x, weight), atol=0.2, rtol=0.05)


def test_the_fake_propagates_shape_and_dtype_without_computing():
    with FakeTensorMode() as mode:
        x, weight, _, _ = (mode.from_tensor(t) for t in operands(3))
        got = linear(x, weight)
        out = torch.ops.stepscope.linear.out(x, weight, out=torch.empty(3, 24))
    assert (got.shape, got.dtype, got.stride()) == ((3, 24), torch.float32, (24, 1))
    assert out.shape == (3, 24)


@pytest.mark.parametrize("rows", [1, 4, 5, 8, 9, 64, 65])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("with_residual", [False, True])
def test_a_packed_weight_gives_the_same_product(rows, with_bias, with_residual):
    x, weight, bias, residual = operands(rows, out_features=192)
    linear_file.pack(weight)
    assert (linear_file.packed_layout(weight, rows) is not None) == (uses_columns(weight) and 5 <= rows <= 8)
    extras = (bias if with_bias else None, residual if with_residual else None)
    expected = linear_reference(x, weight, *extras)
    close(linear(x, weight, *extras), expected)
    out = torch.full((rows, 192), float("nan"))
    close(torch.ops.stepscope.linear.out(x, weight, *extras, out=out), expected)


@pytest.mark.parametrize(("out_features", "shape"), [(192, (2, 16, 96)), (128, (2, 16, 64)), (32, (1, 16, 32))])
def test_a_packed_weight_is_cut_in_parts_of_the_widest_width_that_divides_it(out_features, shape):
    weight = operands(8, out_features=out_features)[1]
    linear_file.pack(weight)
    packed = linear_file.packed_layout(weight, 8)
    assert packed is not None
    assert packed.shape == shape
    assert torch.equal(packed[0, 3], weight[: shape[2], 3])


@pytest.mark.parametrize("out_features", [24, linear_file.MOST_PACKED_LENGTH + 96])
def test_a_weight_that_no_width_divides_and_a_very_long_one_are_not_packed(out_features):
    x, weight, _, _ = operands(8, out_features=out_features)
    linear_file.pack(weight)
    assert linear_file.packed_layout(weight, 8) is None
    close(linear(x, weight), linear_reference(x, weight))


def test_a_packed_product_may_be_written_over_its_residual():
    x, weight, _, residual = operands(8, out_features=96)
    linear_file.pack(weight)
    expected = linear_reference(x, weight, None, residual)
    torch.ops.stepscope.linear.out(x, weight, None, residual, out=residual)
    close(residual, expected)


def test_a_weight_that_is_not_multiplied_as_columns_is_not_packed(monkeypatch):
    monkeypatch.setattr(linear_file, "HAS_MKL", False)
    weight = torch.randn(96, 16)
    linear_file.pack(weight)
    assert linear_file.packed_layout(weight, 8) is None


def test_one_row_of_a_transposed_result_is_multiplied_right():
    columns = torch.randn(16, 1)
    x = columns.t().contiguous()  # stride 1 on both axes
    weight = torch.randn(24, 16)
    close(linear(x, weight), x @ weight.t())

"""Shapes come from fake tensors, once per signature, and equal what the operation really returns."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuda_graphs.tape_shapes import ShapePropagation, TensorShape, map_leaves, shape_of, tensors_in
from engine.errors import CaptureRefusedError

aten = torch.ops.aten
sizes = st.integers(1, 5)


@settings(deadline=None, max_examples=50)
@given(sizes, sizes, sizes, st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))
def test_a_product_has_the_shape_that_it_really_has(n, k, m, dtype):
    a, b = torch.zeros(n, k, dtype=dtype), torch.zeros(m, k, dtype=dtype).t()
    assert ShapePropagation().propagate(aten.mm.default, (a, b), {}) == shape_of(a @ b)


@settings(deadline=None, max_examples=50)
@given(st.lists(sizes, min_size=1, max_size=3), st.data())
def test_element_wise_results_broadcast_and_promote_as_torch_does(size, data):
    other = [data.draw(st.sampled_from([1, n])) for n in size[data.draw(st.integers(0, len(size) - 1)) :]]
    kinds = st.sampled_from([torch.float32, torch.int32, torch.int64, torch.bool, torch.bfloat16])
    a, b = torch.ones(size, dtype=data.draw(kinds)), torch.ones(other, dtype=data.draw(kinds))
    assert ShapePropagation().propagate(aten.mul.Tensor, (a, b), {}) == shape_of(a * b)


def test_several_results_and_keyword_arguments():
    x = torch.zeros(3, 7)
    values, order = ShapePropagation().propagate(aten.sort.stable, (x,), {"stable": True, "dim": 0})
    assert (values.dtype, order.dtype) == (torch.float32, torch.int64)
    assert (values.size, order.size) == ((3, 7), (3, 7))


def test_a_factory_keeps_its_device_to_itself():
    shape = ShapePropagation().propagate(
        aten.arange.default, (4,), {"device": torch.device("cpu"), "dtype": torch.int32}
    )
    assert shape == TensorShape((4,), (1,), torch.int32)


def test_the_same_question_is_asked_once():
    calls = []
    library = torch.library.Library("shapes_test", "FRAGMENT")
    library.define("twice(Tensor x, float k) -> Tensor")
    library.impl("twice", lambda x, k: calls.append(1) or torch.empty_like(x), "Meta")
    op, shapes = torch.ops.shapes_test.twice.default, ShapePropagation()
    for x, k in ((torch.zeros(2), 1.0), (torch.ones(2), 1.0), (torch.zeros(2), 2.0), (torch.zeros(3), 1.0)):
        shapes.propagate(op, (x, k), {})
    assert len(calls) == 3


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0, False)])
def test_values_that_compare_equal_are_different_questions(one, other):
    shapes, x = ShapePropagation(), torch.zeros(2, dtype=torch.int32)
    dtypes = [shapes.propagate(aten.add.Tensor, (x, k), {}).dtype for k in (one, other)]
    assert dtypes == [(x + k).dtype for k in (one, other)]


def test_arguments_that_do_not_fit_raise_what_the_operation_raises():
    with pytest.raises(RuntimeError, match="same reduction dim"):
        ShapePropagation().propagate(aten.mm.default, (torch.zeros(2, 3), torch.zeros(2, 3)), {})


def test_an_operation_without_a_fake_says_so():
    library = torch.library.Library("shapes_test", "FRAGMENT")
    library.define("bare(Tensor x) -> Tensor")
    library.impl("bare", lambda x: x + 1, "CPU")
    with pytest.raises(CaptureRefusedError, match=r"shapes_test\.bare\.default .* no fake kernel.*register_fake"):
        ShapePropagation().propagate(torch.ops.shapes_test.bare.default, (torch.zeros(2),), {})


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_an_output_of_the_wrong_size_is_refused():
    x, out = torch.zeros(4), torch.zeros(2)
    with pytest.raises(CaptureRefusedError, match=r"it would resize an argument of shape \(2,\)"):
        ShapePropagation().propagate(aten.add.out, (x, x), {"out": out})


def test_leaves_are_mapped_and_walked_in_order():
    a, b = torch.zeros(1), torch.zeros(2)
    tree = (a, [b, None], {"k": a}, 7)
    assert [tuple(t.shape) for t in tensors_in(tree)] == [(1,), (2,), (1,)]
    mapped = map_leaves(tree, torch.Tensor, shape_of)
    assert mapped[3] == 7
    assert mapped[1][1] is None
    assert isinstance(mapped[2]["k"], TensorShape)

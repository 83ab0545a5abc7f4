import math

import pytest
import torch

from engine.errors import ModelError
from engine.models.loading.finite import require_finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_none_is_found_and_named_with_its_place(dtype: torch.dtype, value: float):
    weights = torch.ones(5, 7, dtype=dtype)
    weights[3, 2] = value
    with pytest.raises(
        ModelError, match=rf"^a\.bin: tensor 'w' must hold finite numbers, got {value} at \[3, 2\] \(1 s"
    ):
        require_finite("a.bin: tensor 'w'", weights)


def test_infinities_of_both_signs_do_not_hide_each_other():
    with pytest.raises(ModelError, match=r"got inf at \[0\] \(2 such of 3\); download the file again"):
        require_finite("w", torch.tensor([math.inf, -math.inf, 1.0]))


def test_numbers_too_large_for_float16_get_the_hint():
    with pytest.raises(ModelError, match=r"too large for float16, try dtype='bfloat16' or 'float32'"):
        require_finite("w", torch.tensor([1e6]).half())


@pytest.mark.parametrize(
    "weights",
    [torch.empty(0), torch.zeros(3), torch.full((4,), 3e38), torch.full((9,), 6e4).half(), torch.ones(2, 3).T],
)
def test_finite_weights_pass_also_when_their_sum_overflows(weights: torch.Tensor):
    require_finite("w", weights)

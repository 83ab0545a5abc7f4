"""Weights that are no numbers: NaN or infinity in one of them poisons every token without a sound.

A sum over a tensor is NaN or infinite when any element is, and reads memory at full speed: 0.1 s for 500 MB. Only
a suspicious sum is looked at again. Does not: look at weights mapped from the converted cache; they were seen when
it was written.
"""

import math

import torch

from engine.errors import ModelError


def require_finite(where: str, weights: torch.Tensor) -> None:
    """Refuse weights that hold NaN or infinity. where: the tensor as the message names it. Raises: ModelError."""
    if weights.numel() == 0 or math.isfinite(weights.sum(dtype=torch.float32).item()):
        return
    flat = weights.reshape(-1)
    wrong = torch.nonzero(~torch.isfinite(flat))
    if len(wrong) == 0:  # large numbers only, whose sum overflowed
        return
    first = int(wrong[0])
    place = tuple(int(i) for i in torch.unravel_index(wrong[0, 0], weights.shape))
    hint = "download the file again"
    if weights.dtype is torch.float16 and math.isinf(flat[first].item()):
        hint = "its numbers may be too large for float16, try dtype='bfloat16' or 'float32'"
    message = (
        f"{where} must hold finite numbers, got {flat[first].item()} at {list(place)} ({len(wrong)} such of "
        f"{weights.numel()}); {hint}"
    )
    raise ModelError(message)

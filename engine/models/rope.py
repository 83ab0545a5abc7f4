"""Rotary position tables: the angle of every frequency at every position, computed once.

Does not: rotate anything (``layers.Attention`` does, from the rows that a step's positions select). Source: the
rotary embedding of Llama; the llama3 rule leaves short wavelengths alone, stretches long ones and blends between.
"""

import math

import torch

from engine.models.config import RopeConfig, RopeScalingKind


def inverse_frequencies(rope: RopeConfig, head_size: int) -> torch.Tensor:
    """Give the rotation speed of each pair of dimensions. Units: radians a token. Shapes: [D / 2] float64."""
    exponents = torch.arange(0, head_size, 2, dtype=torch.float64) / head_size
    frequencies = rope.theta**-exponents
    if rope.explicit_factors:
        return frequencies / torch.tensor(rope.explicit_factors, dtype=torch.float64)
    if rope.kind is RopeScalingKind.LINEAR:
        return frequencies / rope.factor
    if rope.kind is RopeScalingKind.LLAMA3:
        # How often a frequency turns within the original context decides how much of it is stretched.
        turns = rope.original_max_position * frequencies / (2 * math.pi)
        kept = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
        kept = kept.clamp(0.0, 1.0)
        return frequencies * (kept + (1.0 - kept) / rope.factor)
    return frequencies


def rope_tables(rope: RopeConfig, head_size: int, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tabulate cos and signed sin for positions 0..num_positions - 1.

    Dimension j turns together with j + D/2; with the first half of sin negated, the rotation of x is
    ``x * cos + turned(x) * signed_sin``, its halves swapped in ``turned``. Shapes: two of [num_positions, D] float32.
    """
    positions = torch.arange(num_positions, dtype=torch.float64)
    angles = torch.outer(positions, inverse_frequencies(rope, head_size))
    cos, sin = angles.cos().float(), angles.sin().float()
    return torch.cat((cos, cos), dim=1), torch.cat((-sin, sin), dim=1)

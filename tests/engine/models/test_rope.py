import math

import torch

from engine.models.config import RopeConfig, RopeScalingKind
from engine.models.rope import inverse_frequencies, rope_tables


def test_tables_rotate_each_pair_by_its_angle_and_keep_its_length():
    cos, signed_sin = rope_tables(RopeConfig(theta=100.0), 8, 20)
    x = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    rotated = x * cos + x.roll(4, -1) * signed_sin
    for position in (0, 1, 19):
        for pair in range(4):
            angle = position * 100.0 ** (-pair / 4)
            a, b = x[position, pair], x[position, pair + 4]
            expected = torch.stack(
                (a * math.cos(angle) - b * math.sin(angle), b * math.cos(angle) + a * math.sin(angle))
            )
            torch.testing.assert_close(rotated[position, [pair, pair + 4]], expected)


def test_linear_scaling_slows_every_frequency_alike():
    plain = inverse_frequencies(RopeConfig(), 16)
    scaled = inverse_frequencies(RopeConfig(kind=RopeScalingKind.LINEAR, factor=4.0), 16)
    torch.testing.assert_close(scaled, plain / 4)


def test_llama3_scaling_keeps_fast_frequencies_and_slows_the_slowest():
    rope = RopeConfig(theta=5e5, kind=RopeScalingKind.LLAMA3, factor=8.0, original_max_position=64)
    plain, scaled = inverse_frequencies(RopeConfig(theta=5e5), 32), inverse_frequencies(rope, 32)
    assert scaled[0] == plain[0]
    torch.testing.assert_close(scaled[-1], plain[-1] / 8)
    assert bool((scaled <= plain).all())


def test_explicit_factors_divide_each_frequency():
    plain = inverse_frequencies(RopeConfig(), 4)
    scaled = inverse_frequencies(RopeConfig(explicit_factors=(1.0, 5.0)), 4)
    torch.testing.assert_close(scaled, plain / torch.tensor([1.0, 5.0], dtype=torch.float64))

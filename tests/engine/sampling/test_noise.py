"""The hash noise: equal on host and device, the same in every row, uniform, finite."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.noise import gumbel, hash_bits
from engine.sampling.seeds import GOLDEN, mix, to_int64

int64 = st.integers(-(2**63), 2**63 - 1)


def host_hash(seed: int, position: int, vocab_id: int) -> int:
    """The same three-fold scramble in Python's integers."""
    row_key = mix(mix(seed + GOLDEN) + (position + 1) * GOLDEN)
    return to_int64(mix(row_key + (vocab_id + 1) * GOLDEN))


@settings(deadline=None)
@given(st.lists(st.tuples(int64, st.integers(0, 2**31 - 1)), min_size=1, max_size=5))
def test_the_device_hash_equals_wrapping_arithmetic_on_the_host(rows):
    seeds = torch.tensor([seed for seed, _ in rows])
    positions = torch.tensor([position for _, position in rows])
    bits = hash_bits(seeds, positions, torch.arange(11))
    assert bits.tolist() == [[host_hash(seed, position, i) for i in range(11)] for seed, position in rows]


@settings(deadline=None)
@given(int64, st.integers(0, 100_000), st.integers(1, 7), st.integers(0, 6))
def test_noise_depends_on_seed_position_and_id_alone(seed, position, num_rows, row):
    row %= num_rows
    seeds, positions = torch.arange(num_rows), torch.arange(num_rows) * 3
    seeds[row], positions[row] = seed, position
    among = gumbel(seeds, positions, torch.arange(257))[row]
    alone = gumbel(torch.tensor([seed]), torch.tensor([position]), torch.arange(257))[0]
    torch.testing.assert_close(among, alone, rtol=1e-6, atol=1e-6)


def test_noise_is_finite_and_has_the_moments_of_a_gumbel():
    noise = gumbel(torch.arange(50), torch.arange(50), torch.arange(4000)).double()
    assert bool(torch.isfinite(noise).all())
    count = noise.numel()
    assert abs(float(noise.mean()) - 0.5772156649) < 5 * math.pi / math.sqrt(6 * count)
    assert abs(float(noise.var()) - math.pi**2 / 6) < 0.05


def test_the_extreme_hashes_stay_finite():
    for bits in (0, 1, 2**63 - 1, 2**62):
        uniform = min(float(torch.tensor(bits).to(torch.float32).add_(0.5).mul_(2.0**-63)), 1.0 - 2.0**-24)
        assert 0.0 < uniform < 1.0
        assert math.isfinite(-math.log(-math.log1p(-uniform)))


def test_neighbouring_seeds_positions_and_ids_share_no_noise():
    bits = hash_bits(torch.arange(40), torch.zeros(40, dtype=torch.int64), torch.arange(500))
    assert bits.unique().numel() == bits.numel()
    bits = hash_bits(torch.zeros(40, dtype=torch.int64), torch.arange(40), torch.arange(500))
    assert bits.unique().numel() == bits.numel()

"""Seeds: wrapped into 64 bits, kept when given, one of its own for each request otherwise."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.seeds import mix, request_seed, to_int64


def test_a_request_keeps_its_own_seed_and_gets_one_of_its_own_otherwise():
    assert request_seed(7, engine_seed=1, request_id=3) == 7
    assert request_seed(2**64 + 5, engine_seed=1, request_id=3) == 5
    derived = {request_seed(None, engine_seed=e, request_id=r) for e in range(20) for r in range(50)}
    assert len(derived) == 1000
    assert all(-(2**63) <= seed < 2**63 for seed in derived)


@settings(deadline=None)
@given(st.integers(-(2**70), 2**70))
def test_wrapping_keeps_the_low_64_bits(value):
    assert to_int64(value) % 2**64 == value % 2**64
    assert -(2**63) <= to_int64(value) < 2**63


def test_mixing_never_maps_two_values_to_one():
    assert len({mix(value) for value in range(-5000, 5000)}) == 10_000

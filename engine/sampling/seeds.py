"""Seeds as 64-bit integers: the host's half of the stateless noise.

A request keeps one seed for its life; the device hashes (seed, position, vocabulary id) from it, so the same
seed draws the same noise whatever else is in the batch.

Does not: draw noise (``noise.py``) or know a batch. Torch-free.
Source: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
"""

from typing import Final

_MASK: Final = (1 << 64) - 1
GOLDEN: Final = 0x9E3779B97F4A7C15
MIX_FIRST: Final = 0xBF58476D1CE4E5B9
MIX_SECOND: Final = 0x94D049BB133111EB


def to_int64(value: int) -> int:
    """Wrap any integer into the signed 64-bit range, as two's complement does."""
    wrapped = value & _MASK
    return wrapped - (1 << 64) if wrapped >> 63 else wrapped


def mix(value: int) -> int:
    """Scramble 64 bits: a bijection in which each input bit moves about half of the output bits."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * MIX_FIRST) & _MASK
    value = ((value ^ (value >> 27)) * MIX_SECOND) & _MASK
    return value ^ (value >> 31)


def request_seed(seed: int | None, *, engine_seed: int, request_id: int) -> int:
    """Return the seed of a request: its own, or one derived from the engine's seed and its id.

    Valid: signed 64-bit, ready for a tensor. A derived seed differs from request to request of one engine.
    """
    if seed is not None:
        return to_int64(seed)
    return to_int64(mix(mix(engine_seed + GOLDEN) + (request_id + 1) * GOLDEN))

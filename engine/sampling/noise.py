"""Gumbel noise as a stateless hash of (seed, position, vocabulary id): no generator, so it can be captured.

A captured graph replays the same operations on new contents; a generator's offset would be host state that the
replay does not see. Here the noise is a function of three integers that lie on the device, so it is the same for
a request whatever row, slot, batch or graph it runs in.

Does not: sample, or read the host.
Source: SplitMix64 in counter form; Gumbel-max sampling (argmax of logit + noise draws from the softmax).
"""

from typing import Final

import torch

from engine.sampling.seeds import GOLDEN, MIX_FIRST, MIX_SECOND, to_int64

_GOLDEN: Final = to_int64(GOLDEN)
_MIX_FIRST: Final = to_int64(MIX_FIRST)
_MIX_SECOND: Final = to_int64(MIX_SECOND)
_LOW_63: Final = (1 << 63) - 1
_BELOW_ONE: Final = 1.0 - 2.0**-24  # the largest float32 under 1


def _shift_right(bits: torch.Tensor, count: int) -> torch.Tensor:
    """Shift without dragging the sign bit along (int64 has only the arithmetic shift)."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def _mix(bits: torch.Tensor) -> torch.Tensor:
    """Scramble 64 bits, as ``seeds.mix`` does on the host; products wrap."""
    bits = (bits ^ _shift_right(bits, 30)) * _MIX_FIRST
    bits = (bits ^ _shift_right(bits, 27)) * _MIX_SECOND
    return bits ^ _shift_right(bits, 31)


def hash_bits(seeds: torch.Tensor, positions: torch.Tensor, vocab_ids: torch.Tensor) -> torch.Tensor:
    """Hash each pair of row and vocabulary id. Shapes: seeds [R], positions [R], vocab_ids [V], all int64 -> [R, V]."""
    row_keys = _mix(_mix(seeds + _GOLDEN) + (positions + 1) * _GOLDEN)
    return _mix(row_keys[:, None] + (vocab_ids + 1) * _GOLDEN)


def gumbel(seeds: torch.Tensor, positions: torch.Tensor, vocab_ids: torch.Tensor) -> torch.Tensor:
    """Return standard Gumbel noise for each row and vocabulary id. Shapes: as ``hash_bits`` -> [R, V] float32.

    The uniform number is at least 2**-64 and less than 1. It is taken as the *distance from one* of the usual
    uniform, because float32 is finest near zero and the winners of the argmax come from there.
    """
    bits = hash_bits(seeds, positions, vocab_ids) & _LOW_63
    uniform = bits.to(torch.float32).add_(0.5).mul_(2.0**-63).clamp_(max=_BELOW_ONE)
    return uniform.neg_().log1p_().neg_().log_().neg_()

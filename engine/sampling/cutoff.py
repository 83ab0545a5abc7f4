"""Find where top-k and top-p cut a row of logits, without sorting it.

Each logit becomes a 32-bit integer whose order is the reverse of the logit's (0 is the best). The cut is then found
digit by digit: a histogram of the leading digit says in which bin the target falls, the next digit refines it. Three
histograms replace a sort of the whole vocabulary, at a fraction of its time. Weights are integers, so the sums are
exact whatever the order of addition: the same row cuts in the same place in every batch and on every device.

Does not: apply temperature, draw, or read the host. Every shape is fixed by [R, V].
Source: radix select, with weights in place of counts.
"""

from typing import Final

import torch

_DIGITS: Final = ((21, 11), (10, 11), (0, 10))  # (shift, width in bits), the leading digit first: 32 bits
_MASS_UNIT: Final = 2.0**40  # the best token's weight; 2**20 tokens of it still fit in 62 bits


def descending_keys(logits: torch.Tensor) -> torch.Tensor:
    """Map logits to integers in [0, 2**32) in reverse order. Shapes: [R, V] float32 -> [R, V] int64.

    The bits of a float grow with its magnitude: right for positive numbers, the wrong way round for negative ones,
    whose bits are therefore flipped. A NaN maps to some key in range.
    """
    bits = (logits + 0.0).view(torch.int32)  # the sum turns -0.0 into +0.0: equal logits, equal keys
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (2**31 - 1) - ascending.to(torch.int64)


def smallest_cut(keys: torch.Tensor, weights: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the smallest key up to which the weights reach the target, and the weight strictly before it.

    Shapes: keys and weights [R, V] int64, target [R, 1] int64 at least 1 -> two of [R, 1] int64. A target above the
    whole weight cuts after everything.
    """
    live, remaining = weights, target
    cut = torch.zeros_like(target)
    for shift, width in _DIGITS:
        digits = (keys >> shift) & ((1 << width) - 1)
        histogram = live.new_zeros((keys.shape[0], 1 << width)).scatter_add_(1, digits, live)
        reached = histogram.cumsum(1)
        digit = (reached < remaining).sum(1, keepdim=True).clamp_(max=(1 << width) - 1)
        remaining = remaining - (reached.gather(1, digit) - histogram.gather(1, digit))
        cut = cut + (digit << shift)
        live = live * (digits == digit)
    return cut, target - remaining


def keep_top_k(keys: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Mark the k best tokens and those that tie with the k-th.

    Shapes: keys [R, V] int64, top_k [R, 1] int64 -> [R, V] bool.
    """
    cut, _before = smallest_cut(keys, torch.ones_like(keys), top_k)
    return keys <= cut


def keep_top_p(keys: torch.Tensor, mass: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Mark the smallest set of best tokens whose share of the mass is at least p; among ties the lowest ids.

    Shapes: keys [R, V] int64, mass [R, V] int64 (``integer_mass``; 0 for tokens that are out already), top_p [R, 1]
    float64 -> [R, V] bool. p of 1 keeps everything, even what has no mass in float32.
    """
    target = (mass.sum(1, keepdim=True).to(torch.float64) * top_p).ceil_().to(torch.int64).clamp_(min=1)
    cut, before = smallest_cut(keys, mass, target)
    is_tied = keys == cut
    tied_mass = mass * is_tied
    reached = tied_mass.cumsum(1).sub_(tied_mass).add_(before)  # mass in front of each tied token
    return (keys < cut) | (is_tied & (reached < target)) | (top_p >= 1.0)


def integer_mass(relative: torch.Tensor) -> torch.Tensor:
    """Turn probabilities relative to the best into integer weights. Shapes: [R, V] in [0, 1] -> [R, V] int64."""
    return (relative * _MASS_UNIT).to(torch.int64)

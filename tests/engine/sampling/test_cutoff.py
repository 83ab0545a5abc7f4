"""The sort-free cuts equal a sort: keys, top-k with ties, the smallest top-p set."""

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling.cutoff import descending_keys, integer_mass, keep_top_k, keep_top_p, smallest_cut

floats = st.floats(width=32, allow_nan=False)


@settings(deadline=None)
@given(st.lists(floats, min_size=2, max_size=30))
def test_keys_order_logits_backwards_and_equal_logits_share_a_key(values):
    logits = torch.tensor([values], dtype=torch.float32)
    keys = descending_keys(logits)[0]
    assert int(keys.min()) >= 0
    assert int(keys.max()) < 2**32
    for a, key_a in zip(logits[0].tolist(), keys.tolist(), strict=True):
        for b, key_b in zip(logits[0].tolist(), keys.tolist(), strict=True):
            assert (a > b) == (key_a < key_b)
            assert (a == b) == (key_a == key_b)


def test_a_nan_maps_to_a_key_in_range():
    payloads = torch.tensor([0x7FC00000, -0x400000, 0x7FFFFFFF, -1], dtype=torch.int32).view(torch.float32)
    keys = descending_keys(payloads[None])
    assert bool(((keys >= 0) & (keys < 2**32)).all())


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 1000)), min_size=1, max_size=40),
    st.integers(1, 50_000),
)
def test_the_cut_is_the_first_key_whose_running_weight_reaches_the_target(pairs, target):
    keys = torch.tensor([[key for key, _ in pairs]])
    weights = torch.tensor([[weight for _, weight in pairs]])
    total = sum(weight for _, weight in pairs)
    if total == 0:
        return
    target = 1 + target % total
    cut, before = smallest_cut(keys, weights, torch.tensor([[target]]))
    expected = min(k for k, _ in pairs if sum(w for key, w in pairs if key <= k) >= target)
    assert int(cut) == expected
    assert int(before) == sum(w for key, w in pairs if key < expected)


def test_a_target_above_the_whole_weight_keeps_everything():
    keys = torch.tensor([[5, 2**32 - 1, 7]])
    cut, _before = smallest_cut(keys, torch.ones_like(keys), torch.tensor([[100]]))
    assert int(cut) == 2**32 - 1


@settings(deadline=None)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=24), st.integers(1, 30))
def test_top_k_keeps_the_k_best_and_the_ties_of_the_last(values, k):
    logits = torch.tensor([values], dtype=torch.float32) / 3
    kept = keep_top_k(descending_keys(logits), torch.tensor([[k]]))[0]
    threshold = sorted(values, reverse=True)[min(k, len(values)) - 1]
    assert kept.tolist() == [value >= threshold for value in values]


def smallest_set(relative: list[float], p: float) -> list[bool]:
    """Brute force in exact integers: walk from the best (lowest id first among equals) until the share is reached."""
    mass = [int(np.float32(r) * np.float32(2**40)) for r in relative]
    target = max(1, math.ceil(p * sum(mass)))
    kept, reached = [False] * len(mass), 0
    for at in sorted(range(len(mass)), key=lambda i: (-relative[i], i)):
        if reached >= target:
            break
        kept[at] = True
        reached += mass[at]
    return kept


@settings(deadline=None)
@given(st.lists(st.integers(-30, 0), min_size=1, max_size=24), st.floats(0.001, 0.999))
def test_top_p_keeps_the_smallest_set_and_breaks_ties_by_lowest_id(values, p):
    scores = torch.tensor([values], dtype=torch.float32) / 5
    scores = scores - scores.max()
    relative = scores.exp()
    kept = keep_top_p(descending_keys(scores), integer_mass(relative), torch.tensor([[p]], dtype=torch.float64))[0]
    assert kept.tolist() == smallest_set(relative[0].tolist(), p)


def test_top_p_of_equal_tokens_cuts_at_the_exact_share():
    scores = torch.zeros(1, 10)
    for p, size in ((0.1, 1), (0.3, 3), (0.5, 5), (0.7, 7), (0.75, 8), (1e-9, 1), (1.0, 10)):
        share = torch.tensor([[p]], dtype=torch.float64)
        kept = keep_top_p(descending_keys(scores), integer_mass(scores.exp()), share)[0]
        assert kept.tolist() == [True] * size + [False] * (10 - size), p


def test_top_p_of_one_keeps_tokens_without_any_mass():
    scores = torch.tensor([[0.0, -200.0, float("-inf")]])
    kept = keep_top_p(descending_keys(scores), integer_mass(scores.exp()), torch.ones(1, 1, dtype=torch.float64))
    assert kept.tolist() == [[True, True, True]]

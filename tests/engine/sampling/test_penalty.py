"""The repetition penalty: transformers' rule, and no bit changed where it is off."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

from engine.sampling.penalty import apply_repetition_penalty
from tests.engine.sampling.sampling_rows import random_logits

INF = float("inf")


@settings(deadline=None)
@given(st.integers(0, 9999), st.sampled_from([0.5, 1.1, 1.5, 3.0]), st.sets(st.integers(0, 39), min_size=1))
def test_seen_tokens_are_changed_as_transformers_changes_them(seed, penalty, seen):
    logits = random_logits(1, 40, seed)
    mask = torch.zeros(1, 40, dtype=torch.bool)
    mask[0, sorted(seen)] = True
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([sorted(seen)]), logits.clone())
    assert torch.equal(apply_repetition_penalty(logits, mask, torch.tensor([[penalty]])), expected)


def test_a_penalty_of_one_changes_no_bit():
    logits = random_logits(3, 50)
    logits[0, :4] = torch.tensor([INF, -INF, 0.0, -0.0])
    ones = torch.ones(3, 1)
    assert torch.equal(apply_repetition_penalty(logits, torch.ones(3, 50, dtype=torch.bool), ones), logits)

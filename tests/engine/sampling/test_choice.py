"""The fixed-shape choice against transformers' processors, and its frequencies against the softmax."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.sampling.choice import choose_rows_reference
from tests.engine.sampling.sampling_rows import make_state, oracle_scores, ours_kept, random_logits, set_slot

INF = float("inf")
settings_space = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.9]),
    top_k=st.sampled_from([None, 1, 2, 5, 17, 64, 1000]),
    top_p=st.sampled_from([1.0, 0.97, 0.9, 0.6, 0.2, 0.01]),
    min_p=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 2.0, 0.7]),
)


@settings(deadline=None, max_examples=150)
@given(settings_space, st.integers(0, 10_000), st.lists(st.integers(0, 63), min_size=1, max_size=20))
def test_kept_tokens_and_their_probabilities_equal_transformers(params, seed, seen):
    logits = random_logits(1, 64, seed)[0]
    kept, scores = ours_kept(logits, params, seen)
    expected = oracle_scores(logits, params, seen)
    assert kept.tolist() == torch.isfinite(expected).tolist()
    ours = scores.masked_fill(~kept, -INF).softmax(0)
    torch.testing.assert_close(ours, expected.softmax(0).float(), atol=1e-5, rtol=1e-4)


def test_every_filter_alone_equals_transformers_on_a_large_vocabulary():
    for seed, change in enumerate(({"top_k": 50}, {"top_p": 0.95}, {"min_p": 0.05}, {"repetition_penalty": 1.2})):
        params = SamplingParams(temperature=0.8, **change)
        logits = random_logits(1, 20_000, seed)[0]
        kept, _scores = ours_kept(logits, params, range(0, 20_000, 3))
        assert torch.equal(kept, torch.isfinite(oracle_scores(logits, params, range(0, 20_000, 3)))), change


def count_choices(state, row, positions):
    """Draw for one slot at many positions at once and count the tokens."""
    slots = torch.zeros(len(positions), dtype=torch.int64)
    tables = {name: getattr(state, name) for name in ("reals", "integers", "token_seen", "vocab_ids")}
    chosen = choose_rows_reference(row.expand(len(positions), -1), slots, positions, **tables)
    return torch.bincount(chosen, minlength=row.shape[1]).float()


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_frequencies_follow_the_softmax(temperature):
    vocab_size, num_draws = 40, 20_000
    row = random_logits(1, vocab_size, seed=3, scale=1.5)
    state = make_state(1, vocab_size)
    set_slot(state, 0, SamplingParams(temperature=temperature, top_k=30), seed=77)
    counts = torch.zeros(vocab_size)
    for start in range(0, num_draws, 1000):
        counts += count_choices(state, row, torch.arange(start, start + 1000))
    scores = oracle_scores(row[0], SamplingParams(temperature=temperature, top_k=30), (0,))
    expected = scores.softmax(0) * num_draws
    assert counts[~torch.isfinite(scores)].sum() == 0
    big = expected >= 5
    statistic = float(((counts - expected)[big] ** 2 / expected[big]).sum())
    freedom = int(big.sum()) - 1
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)  # five sigma above the mean of chi-square

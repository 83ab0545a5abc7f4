"""The CPU kernel equals the fixed-shape reference, row for row, under every mixture of parameters."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.sampling import choice_cpu
from engine.sampling.choice import choose_rows, choose_rows_reference
from tests.engine.sampling.sampling_rows import make_state, random_logits, set_slot

params_space = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.2, 0.8, 1.0, 5.0]),
    top_k=st.sampled_from([None, 1, 3, 20, 299, 300, 4000]),
    top_p=st.sampled_from([1.0, 0.99, 0.9, 0.5, 0.02]),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.2, 0.5]),
)


def both(state, logits, slots, positions):
    tables = {name: getattr(state, name) for name in ("reals", "integers", "token_seen", "vocab_ids")}
    rows = (logits, torch.tensor(slots), torch.tensor(positions))
    return choose_rows(state, *rows).tolist(), choose_rows_reference(*rows, **tables).tolist()


@settings(deadline=None, max_examples=100)
@given(
    st.lists(params_space, min_size=1, max_size=4), st.integers(0, 9999), st.sampled_from(["smooth", "tied", "flat"])
)
def test_the_kernel_chooses_what_the_reference_chooses(params, seed, kind):
    logits = random_logits(len(params), 300, seed)
    if kind == "tied":
        logits = logits.round()
    if kind == "flat":
        logits = logits * 1e-3
    state = make_state(6, 300)
    slots = [5 - n for n in range(len(params))]
    for slot, param in zip(slots, params, strict=True):
        set_slot(state, slot, param, seed=seed + slot, seen=range(0, 300, 7))
    ours, reference = both(state, logits, slots, [seed + n for n in range(len(params))])
    assert ours == reference


@pytest.mark.parametrize("scale", [4.0, 0.01])
@pytest.mark.parametrize("change", [{}, {"top_p": 0.9}, {"top_p": 0.9, "top_k": 3000}, {"min_p": 0.1}, {"top_k": 50}])
def test_a_large_vocabulary_takes_the_short_way_or_the_long_one_to_the_same_token(scale, change):
    assert choice_cpu._NUM_BEST * 2 < 6000
    logits = random_logits(8, 6000, 5, scale=scale)
    state = make_state(8, 6000)
    for slot in range(8):
        set_slot(state, slot, SamplingParams(temperature=1.0, **change), seed=slot)
    ours, reference = both(state, logits, range(8), range(50, 58))
    assert ours == reference
    assert len(set(ours)) > 1


def test_rows_without_a_finite_best_agree_too():
    nan, inf = float("nan"), float("inf")
    logits = torch.tensor([[nan] * 4, [-inf] * 4, [1.0, inf, inf, 0.0], [0.0, 1.0, nan, 2.0], [-inf, 2.0, -inf, 2.0]])
    state = make_state(5, 4)
    for slot in range(5):
        set_slot(state, slot, SamplingParams(temperature=1.0, top_k=2, top_p=0.5, min_p=0.1), seed=slot)
    ours, reference = both(state, logits, range(5), range(5))
    assert ours == reference
    assert ours[:4] == [0, 0, 1, 2]
    assert ours[4] == 1  # of two equal halves, p = 0.5 keeps the lower id


def test_the_op_has_a_correct_schema_and_fake():
    state = make_state(3, 20)
    set_slot(state, 1, SamplingParams(temperature=1.0), seed=3)
    tables = {name: getattr(state, name) for name in ("reals", "integers", "token_seen", "vocab_ids")}
    args = (random_logits(2, 20), torch.tensor([1, 0]), torch.tensor([4, 4]))
    checks = torch.library.opcheck(
        torch.ops.stepscope.choose_rows.default, args, tables, test_utils=("test_schema", "test_faketensor")
    )
    assert set(checks.values()) == {"SUCCESS"}

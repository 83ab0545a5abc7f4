"""Sampling into slots: seeds, ties, greedy rows, odd rows, shared slots, log-probabilities."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.sampling.sampler import log_probs, sample
from tests.engine.sampling.sampling_rows import draw, make_state, random_logits, set_slot

NAN, INF = float("nan"), float("inf")


def test_greedy_takes_the_lowest_id_of_a_tie_in_both_modes():
    logits = torch.tensor([[1.0, 7.0, 7.0, 7.0], [5.0, 5.0, 0.0, 5.0]])
    state = make_state(2, 4)
    slots, positions = torch.tensor([0, 1]), torch.tensor([3, 4])
    sample(state, logits, slots, positions, "greedy")
    assert state.new_tokens.flatten().tolist() == [1, 0]
    state.new_tokens.zero_()
    sample(state, logits, slots, positions, "full")
    assert state.new_tokens.flatten().tolist() == [1, 0]


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_a_greedy_row_of_a_full_batch_equals_the_greedy_mode(seed):
    logits = random_logits(4, 97, seed).to(torch.bfloat16).float()  # bfloat16 makes ties
    state = make_state(6, 97)
    set_slot(state, 2, SamplingParams(temperature=1.0), seed=seed)
    slots, positions = torch.tensor([5, 2, 0, 3]), torch.tensor([9, 9, 1, 4])
    sample(state, logits, slots, positions, "full")
    full = state.new_tokens.clone()
    sample(state, logits, slots, positions, "greedy")
    for slot in (5, 0, 3):
        assert int(full[0, slot, 0]) == int(state.new_tokens[0, slot, 0])


def test_only_the_slots_of_the_rows_are_written():
    state = make_state(5, 8)
    state.new_tokens.fill_(6)
    sample(state, torch.eye(8)[[3, 2]], torch.tensor([4, 1]), torch.tensor([1, 1]), "greedy")
    assert state.new_tokens.flatten().tolist() == [6, 2, 6, 6, 3]
    draw(state, torch.eye(8)[[5, 7]], (0, 2), (1, 1))
    assert state.new_tokens.flatten().tolist() == [5, 2, 7, 6, 3]


def test_the_same_seed_draws_the_same_token_whatever_the_batch_order_or_slot():
    logits = random_logits(6, 500)
    params = SamplingParams(temperature=1.5, top_p=0.95)
    alone = make_state(9, 500)
    expected: list[int] = []
    for row in range(6):
        set_slot(alone, 0, params, seed=100 + row)
        expected += draw(alone, logits[row : row + 1], (0,), (40 + row,))
    assert len(set(expected)) > 1
    for order in ((0, 1, 2, 3, 4, 5), (5, 3, 1, 0, 2, 4), (2, 0)):
        state = make_state(9, 500)
        slots = [8 - row for row in order]
        for row in order:
            set_slot(state, 8 - row, params, seed=100 + row)
        drawn = draw(state, logits[list(order)], slots, [40 + row for row in order])
        assert drawn == [expected[row] for row in order]


def test_other_seeds_and_other_positions_draw_other_tokens():
    logits = torch.zeros(1, 1000)
    state = make_state(1, 1000)
    params = SamplingParams(temperature=1.0)
    by_seed, by_position = set(), set()
    for n in range(60):
        set_slot(state, 0, params, seed=n)
        by_seed.update(draw(state, logits, (0,), (5,)))
        set_slot(state, 0, params, seed=5)
        by_position.update(draw(state, logits, (0,), (n,)))
    assert len(by_seed) > 50
    assert len(by_position) > 50


def test_top_k_of_one_is_greedy_at_any_temperature():
    logits = random_logits(1, 200)
    state = make_state(1, 200)
    set_slot(state, 0, SamplingParams(temperature=100.0, top_k=1), seed=9)
    assert {draw(state, logits, (0,), (n,))[0] for n in range(30)} == {int(logits.argmax())}


def test_a_tiny_temperature_is_greedy_and_stays_finite():
    logits = random_logits(1, 200)
    state = make_state(1, 200)
    for temperature in (1e-6, 1e-30, 1e-45, 1e-300):  # the last is zero in float32
        set_slot(state, 0, SamplingParams(temperature=temperature), seed=4)
        assert draw(state, logits, (0,), (8,)) == [int(logits.argmax())]


def test_the_penalty_follows_prompt_and_generated_tokens():
    state = make_state(2, 5)
    set_slot(state, 1, SamplingParams(temperature=0.0, repetition_penalty=10.0), seen=(4,))
    logits = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])
    drawn = [draw(state, logits, (1,), (n,))[0] for n in range(5)]
    assert drawn == [3, 2, 1, 0, 4]  # 4 was in the prompt; each winner is then seen; at last all are
    assert state.token_seen[1].all()
    assert not state.token_seen[0].any()


@pytest.mark.parametrize("mode", ["greedy", "full"])
def test_rows_with_nan_or_infinity_give_a_valid_token_and_leave_the_others_alone(mode):
    odd = torch.stack(
        [
            torch.full((9,), NAN),
            torch.full((9,), -INF),
            torch.full((9,), INF),
            torch.tensor([0.0, NAN, 1.0, 2.0, INF, -INF, 0.0, 0.0, 0.0]),
            torch.tensor([-INF, -INF, 3.0, -INF, -INF, -INF, -INF, -INF, -INF]),
            torch.arange(9.0),
        ]
    )
    state = make_state(6, 9)
    for slot in range(5):
        set_slot(state, slot, SamplingParams(temperature=1.0, top_p=0.9, top_k=3, repetition_penalty=1.5), seed=slot)
    sample(state, odd, torch.arange(6), torch.arange(6), mode)
    state.check()
    assert state.new_tokens.flatten().tolist()[4:] == [2, 8]
    assert int(state.new_tokens[0, 3, 0]) == 1  # as argmax has it: NaN counts as the largest


def test_rows_that_share_a_padding_slot_do_not_disturb_a_real_row():
    state = make_state(3, 50)
    set_slot(state, 0, SamplingParams(temperature=1.0), seed=1)
    logits = random_logits(4, 50)
    expected = draw(state, logits[:1], (0,), (7,))
    sample(state, logits, torch.tensor([0, 2, 2, 2]), torch.tensor([7, 0, 0, 0]), "full")
    assert int(state.new_tokens[0, 0, 0]) == expected[0]
    assert int(state.new_tokens[0, 2, 0]) in logits[1:].argmax(1).tolist()


def test_an_unknown_mode_is_a_bug_of_the_caller():
    with pytest.raises(AssertionError, match="sideways"):
        sample(make_state(1, 4), torch.zeros(1, 4), torch.tensor([0]), torch.tensor([0]), "sideways")


def test_log_probabilities_equal_log_softmax_and_the_chosen_token_is_always_there():
    logits = random_logits(3, 30)
    best = logits.argsort(1, descending=True)
    chosen = torch.stack([best[0, 0], best[1, 7], best[2, 1]]).to(torch.int32)
    rows = log_probs(logits, chosen, 2).as_dicts()
    expected = logits.log_softmax(1)
    assert [list(row) for row in rows] == [
        best[0, :2].tolist(),
        [*best[1, :2].tolist(), int(best[1, 7])],
        best[2, :2].tolist(),
    ]
    for at, row in enumerate(rows):
        for token_id, value in row.items():
            assert value == pytest.approx(float(expected[at, token_id]), abs=1e-6)


def test_log_probabilities_of_nothing_but_the_chosen_and_of_more_than_the_vocabulary():
    logits = random_logits(1, 4)
    assert list(log_probs(logits, torch.tensor([2]), 0).as_dicts()[0]) == [2]
    assert len(log_probs(logits, torch.tensor([2]), 99).as_dicts()[0]) == 4

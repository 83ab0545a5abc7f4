import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.scheduler.chunking import chunk_rows, equal_progress, first_come, whole


@pytest.mark.parametrize(
    ("start", "remaining", "left", "expected"),
    [
        (0, 20, 20, 20),  # a last chunk may end anywhere
        (0, 20, 19, 16),
        (0, 100, 63, 48),
        (0, 100, 15, 0),
        (13, 100, 3, 3),  # the end counts, not the size: position 16
        (13, 100, 2, 0),
        (13, 100, 34, 19),  # position 32
        (16, 4, 0, 0),
    ],
)
def test_a_truncated_chunk_ends_on_a_unit(start, remaining, left, expected):
    assert chunk_rows(start, remaining, left, 16) == expected


def test_first_come_gives_each_what_those_before_left():
    assert first_come([(0, 40), (0, 30), (0, 4)], 64, chunk_unit=16) == [40, 16, 4]


def test_equal_progress_goes_round_by_round():
    assert equal_progress([(0, 100), (0, 20), (0, 100)], 99, chunk_unit=16) == [32, 20, 32]
    assert equal_progress([(0, 100), (0, 20), (0, 100)], 100, chunk_unit=16) == [48, 20, 32]


def test_equal_progress_ends_a_started_unit_first():
    assert equal_progress([(13, 100), (0, 100)], 40, chunk_unit=16) == [19, 16]


def test_what_is_left_of_a_round_goes_to_whom_it_fits():
    assert equal_progress([(0, 50), (0, 50), (0, 5)], 38, chunk_unit=16) == [16, 16, 5]


def test_a_prompt_runs_whole_or_waits_and_nobody_overtakes():
    assert whole([(0, 40), (0, 30), (0, 2)], 64, max_num_tokens=64, chunk_unit=16) == [40, 0, 0]


@pytest.mark.parametrize(
    ("prompt", "left", "expected"),
    [((0, 70), 64, 64), ((0, 70), 63, 48), ((0, 70), 15, 0), ((64, 6), 64, 6), ((0, 64), 63, 0)],
)
def test_what_no_step_could_hold_is_cut(prompt, left, expected):
    assert whole([prompt, (0, 1)], left, max_num_tokens=64, chunk_unit=16)[0] == expected


def test_a_step_smaller_than_a_unit_still_makes_progress():
    assert whole([(0, 70)], 8, max_num_tokens=8, chunk_unit=16) == [8]


prompts = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 90)), max_size=7)
units = st.sampled_from([1, 4, 7, 16])


@pytest.mark.parametrize("rule", [first_come, equal_progress])
@given(prompts=prompts, budget=st.integers(0, 150), unit=units)
def test_the_budget_holds_and_a_cut_chunk_ends_on_a_unit(rule, prompts, budget, unit):
    sizes = rule(prompts, budget, chunk_unit=unit)
    assert sum(sizes) <= budget
    for (start, remaining), size in zip(prompts, sizes, strict=True):
        assert 0 <= size <= remaining
        assert size in (0, remaining) or (start + size) % unit == 0
    if sum(remaining for _, remaining in prompts) <= budget:
        assert sizes == [remaining for _, remaining in prompts]
    if budget >= unit and prompts:
        assert sizes[0] > 0, "the oldest stood still"


@given(prompts=prompts, budget=st.integers(0, 150), unit=units)
def test_everybody_moves_when_there_is_a_unit_for_each(prompts, budget, unit):
    sizes = equal_progress(prompts, max(budget, unit * len(prompts)), chunk_unit=unit)
    assert all(size > 0 for size in sizes)


@given(prompts=prompts, budget=st.integers(0, 150), unit=units)
def test_of_two_cut_prompts_the_older_is_ahead_by_at_most_a_piece(prompts, budget, unit):
    sizes = equal_progress(prompts, budget, chunk_unit=unit)
    cut = [
        -(-(start + size) // unit) - start // unit if size else 0
        for (start, _), size in zip(prompts, sizes, strict=True)
    ]
    is_cut = [size < remaining for (_, remaining), size in zip(prompts, sizes, strict=True)]
    pieces = [count for count, unfinished in zip(cut, is_cut, strict=True) if unfinished]
    if all(start % unit == 0 for start, _ in prompts):
        assert pieces == sorted(pieces, reverse=True)
        assert not pieces or pieces[0] - pieces[-1] <= 1


@given(prompts=prompts, rounds=st.integers(0, 6), unit=units, data=st.data())
def test_order_decides_nothing_when_the_budget_ends_with_a_round(prompts, rounds, unit, data):
    after = [(start, min(remaining, rounds * unit - start % unit) if rounds else 0) for start, remaining in prompts]
    budget = sum(size for _, size in after)
    order = data.draw(st.permutations(range(len(prompts))))
    sizes = equal_progress([prompts[i] for i in order], budget, chunk_unit=unit)
    assert sizes == [after[i][1] for i in order]

"""The dynamic programme against every list there is, on instances small enough to try them all."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.advice.optimum import BucketCosts, list_cost, optimal_list, optimal_lists

LARGEST = 9
COSTS = st.builds(
    BucketCosts,
    fixed=st.integers(0, 100).map(float),
    per_row=st.integers(0, 30).map(float),
    eager_fixed=st.integers(0, 300).map(float),
    eager_per_row=st.integers(0, 30).map(float),
    capture_us=st.integers(0, 500).map(float),
    graph_mib=st.integers(0, 3).map(float),
    graph_mib_per_row=st.integers(0, 2).map(float),
    us_per_mib=st.integers(0, 20).map(float),
    origin=st.just("test"),
)
HISTOGRAMS = st.dictionaries(st.integers(1, LARGEST), st.integers(0, 40))


def every_list(count):
    for rest in itertools.combinations(range(1, LARGEST), count - 1):
        yield (*rest, LARGEST)


@given(HISTOGRAMS, COSTS, st.integers(1, LARGEST))
def test_no_list_of_at_most_so_many_buckets_is_cheaper_than_the_optimum(histogram, costs, most):
    found = optimal_list(histogram, largest=LARGEST, most=most, costs=costs)
    tried = [list_cost(histogram, sizes, costs).cost for n in range(1, most + 1) for sizes in every_list(n)]
    assert found.cost == pytest.approx(min(tried))
    assert len(found.sizes) <= most


@given(HISTOGRAMS, COSTS, st.integers(1, LARGEST))
def test_the_best_list_of_each_count_is_the_best_of_that_count_with_useful_sizes(histogram, costs, most):
    lists = optimal_lists(histogram, largest=LARGEST, most=most, costs=costs)
    came = {size for size, count in histogram.items() if count} | {LARGEST}
    assert [len(found.sizes) for found in lists] == list(range(1, min(most, len(came)) + 1))
    for count, found in enumerate(lists, start=1):
        useful = [sizes for sizes in every_list(count) if set(sizes) <= came]
        assert found.cost == pytest.approx(min(list_cost(histogram, sizes, costs).cost for sizes in useful))


@given(HISTOGRAMS, COSTS, st.integers(1, 12))
def test_every_list_ascends_and_covers_the_largest_legal_size(histogram, costs, most):
    for found in optimal_lists(histogram, largest=LARGEST, most=most, costs=costs):
        assert list(found.sizes) == sorted(set(found.sizes))
        assert found.sizes[-1] == LARGEST
        assert found.fall_off == 0.0


@given(HISTOGRAMS, COSTS, st.sets(st.integers(1, LARGEST), min_size=1))
def test_the_parts_of_a_price_add_up_to_the_sum_over_steps_and_graphs(histogram, costs, sizes):
    sizes = sorted(sizes)
    total = sum(costs.graph_us(size) for size in sizes)
    for size, num_steps in histogram.items():
        fitting = [bucket for bucket in sizes if bucket >= size]
        total += num_steps * (costs.step_us(fitting[0]) if fitting else costs.eager_us(size))
    assert list_cost(histogram, sizes, costs).cost == pytest.approx(total)


def test_a_thousand_sizes_take_no_quadratic_memory_and_give_the_best_of_many_random_lists():
    import random

    rng = random.Random(3)
    histogram = {size: rng.randrange(1, 1000) for size in range(1, 1001)}
    costs = BucketCosts(
        fixed=3000,
        per_row=10,
        eager_fixed=12000,
        eager_per_row=25,
        capture_us=3e5,
        graph_mib=4,
        graph_mib_per_row=0,
        us_per_mib=1000,
        origin="test",
    )
    found = optimal_lists(histogram, largest=1000, most=20, costs=costs)[-1]
    for _ in range(200):
        sizes = sorted({*rng.sample(range(1, 1000), 19), 1000})
        assert found.cost <= list_cost(histogram, sizes, costs).cost

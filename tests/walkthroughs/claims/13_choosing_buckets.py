from itertools import combinations

assert best.sizes[-1] == 64
assert 1 < len(best.sizes) <= 4
seen = sorted({size for size, count in histogram.items() if count} | {64})
rivals = [(*few, 64) for n in range(3) for few in combinations(seen[:-1:3], n)]
assert min(list_cost(histogram, sizes, costs).cost for sizes in rivals) >= best.cost
assert report["optimal"]["sizes"] == list(best.sizes)
assert list_cost(histogram, (1, 2, 4, 8, 16, 32, 64), costs).cost > best.cost
assert all(default["cost"] >= best.cost for default in report["defaults"].values())
assert 2.9 < costs.eager_us(64) / costs.step_us(64) < 3.2
assert 33 < costs.graph_us(64) / (costs.eager_us(64) - costs.step_us(64)) <= 34
assert 30_000 < costs.graph_us(64) / costs.per_row < 31_000
assert lost > 0
assert cost.cost > best.cost
assert (
    len(optimal_list({s: 2400 * c for s, c in histogram.items()}, largest=64, most=12, costs=costs).sizes)
    > len(best.sizes) + 2
)
assert "MAXIMUM_IS_NO_BUCKET" in printed.getvalue()

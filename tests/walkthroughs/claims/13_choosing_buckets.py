from itertools import combinations

powers = (1, 2, 4, 8, 16, 32, 64)
assert best.sizes[-1] == 64
assert len(best.sizes) <= 4
seen = sorted({size for size, count in histogram.items() if count} | {64})
rivals = [(*few, 64) for n in range(4) for few in combinations(seen[:-1:3], n)]
assert min(list_cost(histogram, sizes, costs).cost for sizes in rivals) >= best.cost
assert report["optimal"]["sizes"] == list(best.sizes)
assert 1 < list_cost(histogram, powers, costs).cost / best.cost < 1.02
assert list_cost(histogram, (4, 8, 16, 32), costs).cost > 1.5 * best.cost
assert all(one["cost"] >= one["optimal_at_same_count"]["cost"] for one in report["defaults"].values())
assert 2.9 < costs.eager_us(64) / costs.step_us(64) < 3.2
assert (costs.per_row, costs.fixed) == (10, 3880)
brief = replace(costs, starts=costs.starts * 24 / 0.02)
assert len(optimal_list(histogram, largest=64, most=12, costs=brief).sizes) < 12
assert len(optimal_list(histogram, largest=64, most=12, costs=costs).sizes) == 12
dear = replace(costs, per_row=200)
dearer = list_cost(histogram, powers, dear).cost / optimal_list(histogram, largest=64, most=12, costs=dear).cost
assert dearer > 1.05
assert lost > 0
assert cost.cost > best.cost
assert "MAXIMUM_IS_NO_BUCKET" in printed.getvalue()

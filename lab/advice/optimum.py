"""The best list of buckets for a histogram, by dynamic programming under a stated cost model.

A list costs what its steps cost, plus what its graphs cost. A step of n requests (or rows) runs as the smallest bucket
that holds it and costs ``fixed + per_row * bucket``; above the largest bucket it falls off and costs ``eager_fixed +
eager_per_row * n``. Each graph costs its capture time, and its memory at a price. The KV lengths that attention reads
are the same whatever the list, so they are left out. The largest legal size is always in the list.

Why the optimum looks only at sizes that came, and at the largest: a bucket between two of them can be lowered to the
next size below that came; it holds the same steps, and neither they nor its graph get dearer.

Does not: measure, read traces, or know any framework's list (``default_lists.py``). Torch-free.
"""

import bisect
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Histogram = Mapping[int, int]
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BucketCosts:
    """Units: microseconds; MiB; us_per_mib is the price of memory. origin: where the numbers are from, in words.

    graph_mib_per_row: memory that a graph takes for each of its rows, beside graph_mib. starts: how many starts of an
    engine, each of which captures every graph once, the histogram has to pay for; mostly a small part of one.
    """

    fixed: float
    per_row: float
    eager_fixed: float
    eager_per_row: float
    capture_us: float
    graph_mib: float
    graph_mib_per_row: float
    us_per_mib: float
    origin: str
    starts: float = 1.0

    def step_us(self, bucket: int) -> float:
        """Cost of a step on the graph of a bucket."""
        return self.fixed + self.per_row * bucket

    def eager_us(self, size: int) -> float:
        """Cost of a step that fell off."""
        return self.eager_fixed + self.eager_per_row * size

    def graph_us(self, bucket: int) -> float:
        """Cost of having a graph at all."""
        memory = self.us_per_mib * (self.graph_mib + self.graph_mib_per_row * bucket)
        return self.starts * (self.capture_us + memory)


@dataclasses.dataclass(frozen=True, slots=True)
class ListCost:
    """What a list costs over a histogram, in microseconds; cost is the sum of the four parts.

    useful: what the steps would cost with a bucket of their own size each. padding, fall_off: what they cost above
    that, on a graph and without. graphs: capture and memory of the list.
    """

    sizes: tuple[int, ...]
    useful: float
    padding: float
    fall_off: float
    graphs: float

    @property
    def cost(self) -> float:
        """The sum."""
        return self.useful + self.padding + self.fall_off + self.graphs


def list_cost(histogram: Histogram, sizes: Sequence[int], costs: BucketCosts) -> ListCost:
    """Price a list of buckets; sizes ascend."""
    useful = padding = fall_off = 0.0
    for size, num_steps in histogram.items():
        own = costs.step_us(size)
        useful += num_steps * own
        at = bisect.bisect_left(sizes, size)
        if at < len(sizes):
            padding += num_steps * (costs.step_us(sizes[at]) - own)
        else:
            fall_off += num_steps * (costs.eager_us(size) - own)
    return ListCost(tuple(sizes), useful, padding, fall_off, sum(costs.graph_us(size) for size in sizes))


def optimal_lists(histogram: Histogram, *, largest: int, most: int, costs: BucketCosts) -> tuple[ListCost, ...]:
    """Return the best list of exactly 1, 2, ... up to ``most`` buckets; all of them end at ``largest``.

    There are fewer than ``most`` when fewer sizes came. Cost: O(most * s) array operations for s different sizes.
    """
    assert all(1 <= size <= largest and count >= 0 for size, count in histogram.items())
    sizes = sorted({size for size, count in histogram.items() if count} | {largest})
    weights = np.array([histogram.get(size, 0) for size in sizes], dtype=np.float64)
    before = np.concatenate([[0.0], np.cumsum(weights)])  # steps of the sizes below
    step = np.array([costs.step_us(size) for size in sizes])
    graph = np.array([costs.graph_us(size) for size in sizes])
    best = before[1:] * step + graph  # of lists that end at each size, with one bucket
    chosen: list[Places] = [np.full(len(sizes), -1, dtype=np.int64)]
    found = [_traced(sizes, chosen)]
    for _ in range(1, min(most, len(sizes))):
        previous = _best_before(best, before[1:], step)
        best = best[previous] + step * (before[1:] - before[1:][previous]) + graph
        best[0] = np.inf  # no size is below the smallest
        chosen.append(previous)
        found.append(_traced(sizes, chosen))
    return tuple(list_cost(histogram, traced, costs) for traced in found)


def optimal_list(histogram: Histogram, *, largest: int, most: int, costs: BucketCosts) -> ListCost:
    """Return the best list of at most ``most`` buckets; the shortest of equally good ones."""
    return min(optimal_lists(histogram, largest=largest, most=most, costs=costs), key=lambda found: found.cost)


def _best_before(best: Floats, up_to: Floats, step: Floats) -> Places:
    """Find, for each last size, the size to stand before it: the place i that makes best[i] - step * up_to[i] least.

    A larger last size never wants an earlier one before it, because its steps cost more the further they are padded;
    so the places of the middle bound those of either half.
    """
    found: Places = np.zeros(len(best), dtype=np.int64)
    stretches = [(1, len(best) - 1, 0, len(best) - 2)]  # last sizes from, to; places from, to
    while stretches:
        first, last, low, high = stretches.pop()
        if first > last:
            continue
        middle = (first + last) // 2
        stop = min(high, middle - 1) + 1
        at = low + int(np.argmin(best[low:stop] - step[middle] * up_to[low:stop]))
        found[middle] = at
        stretches += [(first, middle - 1, low, at), (middle + 1, last, at, high)]
    return found


def _traced(sizes: Sequence[int], chosen: Sequence[Places]) -> tuple[int, ...]:
    """Walk back from the largest size through what was chosen before it."""
    at, buckets = len(sizes) - 1, [sizes[-1]]
    for previous in reversed(chosen[1:]):
        at = int(previous[at])
        buckets.append(sizes[at])
    return tuple(reversed(buckets))

"""Advice on buckets: the best list for a histogram, beside the lists that frameworks come with.

Every list is judged with the largest legal size in it, so that no legal batch is without a graph and lists differ only
in where they pad; what a list costs as it is shipped stands beside it.

Does not: count steps (``histogram.py``), draw (``page.py``), or print.
"""

import dataclasses
from typing import Any, Final, Literal

from engine.errors import TraceError
from lab.advice.default_lists import DECODE, PREFILL, Rule, completed
from lab.advice.histogram import StepSizes
from lab.advice.optimum import BucketCosts, Histogram, ListCost, list_cost, optimal_lists
from lab.replay.cost_model import CostModel

Kind = Literal["decode", "prefill"]
RULES: Final[dict[Kind, dict[str, Rule]]] = {"decode": DECODE, "prefill": PREFILL}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GraphPrice:
    """What one graph costs: milliseconds to capture, MiB, MiB for each row, and what a MiB is worth in milliseconds.

    Both are paid once a start, and a start serves ``hours`` of steps; a histogram pays the part that its own steps are
    of them. The defaults are given, not measured; ``stepscope plan-buckets --measure`` puts this machine's numbers in.
    """

    capture_ms: float = 300.0
    mib: float = 4.0
    mib_per_row: float = 0.0
    ms_per_mib: float = 1.0
    hours: float = 24.0
    origin: str = "given, not measured"


@dataclasses.dataclass(frozen=True, slots=True)
class DefaultList:
    """A framework's list: with the largest size added, as shipped, and the best list of the same length."""

    name: str
    priced: ListCost
    as_shipped: ListCost
    optimum: ListCost


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to capture. by_count: the best list of 1, 2, ... buckets, as far as more sizes came."""

    kind: Kind
    sizes: StepSizes
    histogram: Histogram
    largest: int
    most: int
    costs: BucketCosts
    optimal: ListCost
    by_count: tuple[ListCost, ...]
    defaults: tuple[DefaultList, ...]

    def report(self) -> dict[str, Any]:
        """Return the numbers as plain values, with the keys that scripts count on; ``rows`` has the lists as shipped.

        Units: microseconds over the whole histogram.
        """
        return {
            "optimal": _brief(self.optimal),
            "defaults": {
                default.name: {**_brief(default.priced), "optimal_at_same_count": _brief(default.optimum)}
                for default in self.defaults
            },
            "histogram": {str(size): count for size, count in self.histogram.items()},
            "cost_model": {"kind": self.kind, "largest": self.largest, **dataclasses.asdict(self.costs)},
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each list: buckets, and its cost in virtual milliseconds, part by part."""
        rows = [_row(f"optimum, at most {self.most}", self.optimal, self.optimal)]
        for default in self.defaults:
            rows.append(_row(default.name, default.priced, self.optimal))
            if default.as_shipped.sizes != default.priced.sizes:
                rows.append(_row(f"{default.name}, as shipped", default.as_shipped, self.optimal))
            rows.append(_row(f"optimum of {len(default.priced.sizes)}", default.optimum, self.optimal))
        return rows


def bucket_costs(model: CostModel, price: GraphPrice, kind: Kind, histogram: Histogram) -> BucketCosts:
    """Join the cost of a step and that of a graph, for so many steps."""
    line = model.graph if kind == "decode" else model.prefill
    costs = BucketCosts(
        fixed=line.fixed,
        per_row=line.per_row,
        eager_fixed=model.eager.fixed,
        eager_per_row=model.eager.per_row,
        capture_us=1e3 * price.capture_ms,
        graph_mib=price.mib,
        graph_mib_per_row=price.mib_per_row,
        us_per_mib=1e3 * price.ms_per_mib,
        origin=f"steps: {model.origin}; graphs: {price.origin}",
    )
    busy_us = sum(num_steps * costs.step_us(size) for size, num_steps in histogram.items())
    return dataclasses.replace(costs, starts=busy_us / (3.6e9 * price.hours))


def advise(sizes: StepSizes, model: CostModel, price: GraphPrice, *, most: int, kind: Kind) -> Advice:
    """Find the best list of at most ``most`` buckets and price the defaults. Raises: TraceError for no such step."""
    histogram = sizes.decode if kind == "decode" else sizes.prefill
    largest = sizes.max_batch_size if kind == "decode" else sizes.max_num_tokens
    if not histogram:
        what = "decode steps" if kind == "decode" else "steps with prompts"
        message = f"{sizes.source}: there are no {what}, so nothing to choose buckets for"
        raise TraceError(message)
    costs = bucket_costs(model, price, kind, histogram)
    lists = {name: completed(rule(largest), largest) for name, rule in RULES[kind].items()}
    longest = max(most, *(len(found) for found in lists.values()))
    by_count = optimal_lists(histogram, largest=largest, most=longest, costs=costs)

    def best(count: int) -> ListCost:
        return min(by_count[:count], key=lambda found: found.cost)

    defaults = [
        DefaultList(
            name,
            list_cost(histogram, found, costs),
            list_cost(histogram, RULES[kind][name](largest), costs),
            best(len(found)),
        )
        for name, found in lists.items()
    ]
    return Advice(
        kind=kind,
        sizes=sizes,
        histogram=histogram,
        largest=largest,
        most=most,
        costs=costs,
        optimal=best(most),
        by_count=by_count,
        defaults=tuple(defaults),
    )


def _brief(found: ListCost) -> dict[str, Any]:
    return {"sizes": list(found.sizes), "cost": round(found.cost, 3)}


def _row(name: str, found: ListCost, optimal: ListCost) -> dict[str, Any]:
    return {
        "list": name,
        "buckets": len(found.sizes),
        "cost_ms": round(found.cost / 1e3, 1),
        "padding_ms": round(found.padding / 1e3, 1),
        "fall_off_ms": round(found.fall_off / 1e3, 1),
        "graphs_ms": round(found.graphs / 1e3, 1),
        "above_optimum_ms": round((found.cost - optimal.cost) / 1e3, 1),
    }

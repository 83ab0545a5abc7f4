"""The page of bucket advice: the histogram over the lists, and the cost of each list, beside their tables.

Does not: choose or price (``advise.py``, ``optimum.py``).
"""

from collections.abc import Sequence
from typing import Any

from lab.advice.advise import Advice
from lab.figures.charts import bars, ladder
from lab.figures.page import Section, page
from lab.trace_summary import percent

_UNIT = {"decode": "requests", "prefill": "rows"}


def advice_page(advices: Sequence[Advice], lead: Sequence[str] = ()) -> str:
    """Return the HTML for one or more kinds of buckets of the same traffic."""
    sections = [section for advice in advices for section in _sections(advice)]
    return page("Buckets for this traffic", (*lead, advices[0].sizes.source, *cost_sentences(advices)), sections)


def cost_sentences(advices: Sequence[Advice]) -> tuple[str, ...]:
    """State what a step and a graph cost, for each kind."""
    found: list[str] = []
    for advice in advices:
        costs, unit = advice.costs, _UNIT[advice.kind]
        on_graph = f"a step on a graph costs {costs.fixed:g} + {costs.per_row:g} * bucket us"
        eager = f"one that falls off {costs.eager_fixed:g} + {costs.eager_per_row:g} * {unit} us"
        memory = f"{costs.graph_mib:g} MiB + {costs.graph_mib_per_row:g} a row, at {costs.us_per_mib / 1e3:g} ms a MiB"
        graph = f"a graph costs {costs.capture_us / 1e3:g} ms to capture and {memory}, once a start; these steps are"
        graph += f" {percent(costs.starts)} of what a start serves"
        found.append(f"{advice.kind}: {on_graph}, {eager}; {graph} ({costs.origin})")
    return tuple(found)


def _sections(advice: Advice) -> list[Section]:
    unit = _UNIT[advice.kind]
    lists = {"optimum": advice.optimal.sizes} | {d.name: d.priced.sizes for d in advice.defaults}
    rows = advice.rows()
    parts = ("padding_ms", "fall_off_ms", "graphs_ms")
    return [
        Section(
            f"{advice.kind.capitalize()}: what came, and which lists there are",
            ladder(f"Steps by {unit}", advice.histogram, lists, axis=unit, unit="steps"),
            [{"list": name, "sizes": " ".join(map(str, sizes))} for name, sizes in lists.items()],
            f"each list, with the largest legal size, {advice.largest}, in it",
        ),
        Section(
            f"{advice.kind.capitalize()}: what each list costs",
            bars(
                "Cost above the useful work",
                [row["list"] for row in rows],
                {part.removesuffix("_ms").replace("_", " "): [row[part] for row in rows] for part in parts},
                axis="list",
                unit="virtual ms",
            ),
            rows,
            "virtual milliseconds over all steps; cost is the useful work and the three parts",
        ),
        Section(
            f"{advice.kind.capitalize()}: more buckets, less padding",
            _by_count(advice),
            _count_rows(advice),
            "the best list of each length",
        ),
    ]


def _count_rows(advice: Advice) -> list[dict[str, Any]]:
    return [
        {
            "buckets": len(found.sizes),
            "cost_ms": round(found.cost / 1e3, 1),
            "padding_ms": round(found.padding / 1e3, 1),
            "graphs_ms": round(found.graphs / 1e3, 1),
        }
        for found in advice.by_count[: max(advice.most, 24)]
    ]


def _by_count(advice: Advice) -> Any:
    rows = _count_rows(advice)
    series = {"padding": [row["padding_ms"] for row in rows], "graphs": [row["graphs_ms"] for row in rows]}
    return bars(
        "The best list of each length", [row["buckets"] for row in rows], series, axis="buckets", unit="virtual ms"
    )

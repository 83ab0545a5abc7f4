"""Overview charts as Plotly figures: pure, numbers in, a figure out, template "none".

Every chart stands beside a table of the same numbers (``page.py``); none of them is the only place of a fact.

Does not: know a step, a trace or a replay, write files, or step through anything (the stepper does). Torch-free.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

COLOURS: Final = ("#0b5fa5", "#b3541e", "#2f7d32", "#6d4c9f", "#7a6a00")  # told apart also without colour: by dash
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash")
_MOST_BINS: Final = 400


def binned(times: Any, values: Any, num_bins: int = _MOST_BINS) -> tuple[list[float], list[float], list[float]]:
    """Cut time into equal bins and return the middle, the mean and the maximum of each that holds a value.

    Units: those of the arguments. times need not be ordered.
    """
    times, values = np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if not len(times):
        return [], [], []
    first, last = float(times.min()), float(times.max())
    width = (last - first) / num_bins or 1.0
    place = np.minimum(((times - first) / width).astype(np.int64), num_bins - 1)
    counts = np.bincount(place, minlength=num_bins)
    used = counts > 0
    means = np.bincount(place, weights=values, minlength=num_bins)[used] / counts[used]
    tops = np.full(num_bins, -np.inf)
    np.maximum.at(tops, place, values)
    middles = first + width * (np.flatnonzero(used) + 0.5)
    return middles.tolist(), means.tolist(), tops[used].tolist()


def over_time(title: str, times_s: Any, series: Mapping[str, Any], *, unit: str) -> go.Figure:
    """Draw the mean of each series over virtual time; the maximum of each bin is in the text under the pointer."""
    figure = go.Figure()
    for at, (name, values) in enumerate(series.items()):
        middles, means, tops = binned(times_s, values)
        look = at % len(COLOURS)
        figure.add_scatter(
            x=middles,
            y=means,
            customdata=tops,
            mode="lines",
            name=name,
            line={"color": COLOURS[look], "dash": _DASHES[look], "width": 2},
            hovertemplate="%{x:.1f} s: mean %{y:.1f}, most %{customdata:.0f}",
        )
    return _laid_out(figure, title, "virtual time, s", unit)


def bars(title: str, names: Sequence[object], series: Mapping[str, Any], *, axis: str, unit: str) -> go.Figure:
    """Draw one group of bars a name. names stay categories, also where they are numbers."""
    figure = go.Figure()
    for at, (name, values) in enumerate(series.items()):
        figure.add_bar(
            x=[str(n) for n in names], y=list(values), name=name, marker={"color": COLOURS[at % len(COLOURS)]}
        )
    figure.update_layout(barmode="group")
    figure.update_xaxes(type="category")
    return _laid_out(figure, title, axis, unit)


def ladder(
    title: str, histogram: Mapping[int, float], lists: Mapping[str, Sequence[int]], *, axis: str, unit: str
) -> go.Figure:
    """Draw how often each size came, and under it the sizes of each list as marks on a line of their own."""
    figure = go.Figure()
    sizes = sorted(histogram)
    figure.add_bar(x=sizes, y=[histogram[size] for size in sizes], name=unit, marker={"color": COLOURS[0]})
    for at, (name, marks) in enumerate(lists.items()):
        figure.add_scatter(
            x=list(marks),
            y=[name] * len(marks),
            yaxis="y2",
            mode="markers",
            name=name,
            showlegend=False,
            marker={"symbol": "line-ns-open", "size": 12, "color": COLOURS[(at + 1) % len(COLOURS)]},
            hovertemplate=f"{name}: %{{x}}<extra></extra>",
        )
    figure = _laid_out(figure, title, axis, unit)
    share = min(0.6, 0.08 + 0.055 * len(lists))
    figure.update_layout(
        height=420 + 18 * len(lists),
        margin={"l": 190},
        yaxis={"domain": [share + 0.06, 1.0]},
        yaxis2={"domain": [0.0, share], "type": "category", "autorange": "reversed"},
        xaxis={"anchor": "y2"},
    )
    return figure


def _laid_out(figure: go.Figure, title: str, x_title: str, y_title: str) -> go.Figure:
    figure.update_layout(
        template="none",
        title={"text": title, "x": 0.0, "xref": "paper", "font": {"size": 16}},
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "y": 1.08, "x": 1.0, "xanchor": "right"},
        margin={"l": 70, "r": 20, "t": 60, "b": 55},
        height=380,
        xaxis={"title": {"text": x_title}},
        yaxis={"title": {"text": y_title}, "rangemode": "tozero"},
    )
    return figure

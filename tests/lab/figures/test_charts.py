import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.figures.charts import bars, binned, ladder, over_time

POINTS = st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 1000)), min_size=1, max_size=60)


@given(POINTS, st.integers(1, 20))
def test_bins_keep_the_maximum_and_every_point_counts_in_one_mean(points, num_bins):
    times, values = zip(*points, strict=True)
    middles, means, tops = binned(times, values, num_bins)
    assert len(middles) == len(means) == len(tops) <= num_bins
    assert max(tops) == max(values)
    assert min(means) >= min(values) - 1e-9
    assert all(mean <= top + 1e-9 for mean, top in zip(means, tops, strict=True))
    assert middles == sorted(middles)


def test_the_mean_of_a_bin_is_that_of_its_points():
    assert binned([0, 1, 9, 10], [2, 4, 10, 30], 2) == ([2.5, 7.5], [3.0, 20.0], [4.0, 30.0])
    assert binned([], []) == ([], [], [])
    assert binned([5, 5], [1, 3], 4)[1:] == ([2.0], [3.0])


def is_plain(figure):
    """Plotly's own style adds nothing: template "none" has no colours of its own."""
    return figure.layout.template.layout.colorway is None or figure.layout.paper_bgcolor is None


def test_over_time_draws_a_line_a_series_told_apart_also_without_colour():
    figure = over_time("T", np.arange(10) / 10, {"a": np.arange(10), "b": np.ones(10)}, unit="requests")
    assert [trace.name for trace in figure.data] == ["a", "b"]
    assert len({trace.line.dash for trace in figure.data}) == 2
    assert figure.layout.xaxis.title.text == "virtual time, s"
    assert figure.layout.yaxis.title.text == "requests"
    assert is_plain(figure)


def test_bars_keep_numbers_as_categories():
    figure = bars("T", [8, 1], {"steps": [3, 4]}, axis="bucket", unit="steps")
    assert figure.layout.xaxis.type == "category"
    assert list(figure.data[0].x) == ["8", "1"]
    assert list(figure.data[0].y) == [3, 4]


def test_a_ladder_marks_the_sizes_of_each_list_under_the_histogram():
    figure = ladder("T", {3: 5, 1: 2}, {"ours": (1, 4), "theirs": (2, 4)}, axis="requests", unit="steps")
    assert list(figure.data[0].x) == [1, 3]
    assert list(figure.data[0].y) == [2, 5]
    assert [(trace.name, list(trace.x)) for trace in figure.data[1:]] == [("ours", [1, 4]), ("theirs", [2, 4])]
    low, high = figure.layout.yaxis2.domain, figure.layout.yaxis.domain
    assert low[1] < high[0], "the lists stand below the bars"


@pytest.mark.parametrize("num_lists", [1, 5, 12])
def test_a_ladder_leaves_room_for_the_bars_however_many_lists_there_are(num_lists):
    lists = {f"list {at}": (1, 2) for at in range(num_lists)}
    figure = ladder("T", {1: 1}, lists, axis="requests", unit="steps")
    assert figure.layout.yaxis.domain[1] - figure.layout.yaxis.domain[0] >= 0.3

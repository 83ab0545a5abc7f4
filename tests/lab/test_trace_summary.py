import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.snapshot import RowsView
from lab.trace_summary import count_names, graph_share, percent, percents, summarize
from tests.lab.sample_steps import int32, sample_trace

NO_ROWS = RowsView(int32([]), np.zeros(0, np.uint8), int32([]), int32([]), np.zeros(0, np.uint8), int32([]), int32([]))


def test_paths_and_reasons_are_counted_with_the_most_frequent_first():
    found = summarize(sample_trace(5).steps, num_requests=2, simulated=True)
    assert found.paths == {"replay": 4, "eager": 1}
    assert found.reasons == {"HAS_CONTEXT_UNPROMOTED": 1}
    assert count_names(["b", "a", "c", "a"]) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0, "0.0 %"),
        (3.18e-07, "< 0.01 %"),
        (0.0001, "0.01 %"),
        (0.0064, "0.64 %"),
        (0.123, "12.3 %"),
        (0.9, "90.0 %"),
        (0.9996, "99.96 %"),
        (1 - 1e-9, "> 99.99 %"),
        (1, "100.0 %"),
        (4.2, "420.0 %"),
    ],
)
def test_a_share_is_written_so_that_little_is_not_nothing_and_most_is_not_all(share, words):
    assert percent(share) == words


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ((0.8, 0.9), ("80.0 %", "90.0 %")),
        ((0.8, 0.8), ("80.0 %", "80.0 %")),
        ((21 / 26, 0.8077), ("80.769 %", "80.770 %")),
        ((0.99991, 0.99992), ("99.991 %", "99.992 %")),
        ((0.00001, 0.00002), ("0.001 %", "0.002 %")),
    ],
)
def test_two_shares_have_as_many_digits_as_tell_them_apart(shares, words):
    assert percents(*shares) == words


@given(st.floats(0, 1), st.floats(0, 1))
def test_two_shares_look_the_same_only_if_they_are(left, right):
    texts = percents(left, right)
    assert (texts[0] == texts[1]) == (left == right)


def test_a_step_without_a_forward_counts_for_no_share():
    steps = list(sample_trace(5).steps)
    idle = dataclasses.replace(steps[0], schedule=dataclasses.replace(steps[0].schedule, spans=()))
    assert graph_share(steps) == 0.8
    assert graph_share([idle, *steps[1:]]) == 1.0
    assert graph_share([idle]) is None


def test_a_summary_of_imported_steps_counts_no_requests_and_tokens_that_nobody_knows():
    outlines = [dataclasses.replace(step, rows=NO_ROWS) for step in sample_trace(5).steps]
    text = str(summarize(outlines, num_requests=0, simulated=False))
    assert text.splitlines()[0] == "5 steps (4 replay, 1 eager), imported: requests and tokens are not in the file"
    assert "0 requests" in str(summarize([], num_requests=0, simulated=False))

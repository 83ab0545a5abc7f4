"""On the CPU, every combination gives the tokens of the plainest path: full product on tiny."""

import pytest

from engine import LLM
from tests.equivalence.margin import TOLERANCE
from tests.equivalence.table import FULL_PRODUCT, OVERLAP_ROWS, PREFILL_ROWS, assert_row, tiny_cases


@pytest.fixture(scope="module")
def cases():
    return tiny_cases("cpu")


def test_the_reference_is_worth_comparing(cases):
    assert len({case.greedy_ids for case in cases}) == len(cases)
    assert sum(min(case.margins) > TOLERANCE for case in cases) >= 5, "most cases compare to their end"
    assert all(len(set(case.greedy_ids)) > 3 for case in cases)


def is_quick(row):
    """Of the rows with overlap the default tier takes the native ones with padding."""
    return not row.overlap or (row.backend == "native" and row.padding)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=() if is_quick(row) else pytest.mark.slow, id=str(row))
        for row in FULL_PRODUCT + PREFILL_ROWS + OVERLAP_ROWS
    ],
)
def test_every_combination_gives_the_tokens_of_the_plainest_path(cases, row):
    with LLM("tiny", row.config("cpu")) as llm:
        assert_row(llm, row, cases)

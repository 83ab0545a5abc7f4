"""On a stream that runs everything late, the event protocol still gives the same tokens."""

import pytest

from engine import LLM
from tests.equivalence.margin import assert_equal_by_margin
from tests.equivalence.table import Row, tiny_cases


@pytest.fixture(scope="module")
def cases():
    return tiny_cases("cpu")


@pytest.mark.parametrize("depth", [1, 3, 10_000])
@pytest.mark.parametrize("backend", ["vanilla", "native"])
@pytest.mark.parametrize("graphs", [False, True])
def test_late_copies_and_launches_change_no_token(cases, depth, backend, graphs):
    row = Row(graphs=graphs, backend=backend, padding=True, budget=64, prefill=(8, 48) if graphs else ())
    with LLM("tiny", row.config("cpu"), stream_lag=depth) as llm:
        compared = assert_equal_by_margin(llm, cases, together=True)
        llm.check()
    assert compared >= 0.9 * sum(len(case.greedy_ids) for case in cases)

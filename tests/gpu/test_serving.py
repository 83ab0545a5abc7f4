"""On CUDA, verify rows and reused blocks give the tokens that the plainest path gives on the CPU."""

import dataclasses

import pytest
import torch

from engine import LLM
from tests.equivalence import test_reuse, test_verify
from tests.equivalence.margin import assert_equal_by_margin
from tests.equivalence.table import tiny_cases

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device (make gpu)"),
]

VERIFY_ROWS = [test_verify.Row(overlap=overlap) for overlap in (False, True)] + test_verify.ROWS
REUSE_ROWS = [row for row in test_reuse.ROWS if not row.lag]


@pytest.fixture(scope="module")
def cases():
    return tiny_cases("cpu")


@pytest.fixture(scope="module")
def talks():
    return test_reuse.reference_turns()


@pytest.mark.parametrize("row", VERIFY_ROWS, ids=str)
@pytest.mark.parametrize("kind", ["perfect", "random"])
def test_drafts_change_no_token(cases, row, kind):
    watch = test_verify.Watch()
    with LLM("tiny", row.config("cuda")) as llm:
        test_verify.assert_same_text(cases, test_verify.serve(llm, cases, kind, watch))
    assert watch.accepted > 0
    assert bool(watch.draft_graphs) == (row.graphs and row.captured)
    assert bool(watch.derived) == row.overlap or row.budget is not None


@pytest.mark.parametrize("row", REUSE_ROWS, ids=str)
def test_reused_blocks_change_no_token(talks, row):
    config = dataclasses.replace(row.config(), device="cuda", dtype="float32")
    counter = test_reuse.ReuseCounter()
    with LLM("tiny", config) as llm:
        llm.set_probe(counter)
        compared = assert_equal_by_margin(llm, talks, together=True)
        llm.check()
    assert compared >= 0.9 * sum(len(case.greedy_ids) for case in talks)
    assert counter.counts["credit"] > 0

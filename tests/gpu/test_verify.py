"""On CUDA, verified drafts give the tokens of the plainest path on the CPU, in turn and overlapped, on real graphs."""

import pytest
import torch

from engine import LLM
from tests.equivalence.table import tiny_cases
from tests.equivalence.test_verify import ROWS, Row, Watch, assert_same_text, serve

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device (make gpu)"),
]


@pytest.fixture(scope="module")
def cases():
    return tiny_cases("cpu")


@pytest.mark.parametrize("kind", ["perfect", "random", "wrong"])
@pytest.mark.parametrize("row", [Row(), Row(overlap=True), *ROWS], ids=str)
def test_every_combination_verifies_to_the_tokens_of_the_cpu(cases, row, kind):
    watch = Watch()
    with LLM("tiny", row.config("cuda")) as llm:
        assert llm.warmup_report.simulated is False
        assert_same_text(cases, serve(llm, cases, kind, watch))
    assert (watch.accepted > 0) == (kind != "wrong")
    assert bool(watch.draft_graphs) == (row.graphs and row.captured)

"""SmolLM2-135M on CUDA in float32 equals the independent reference by margin, over real graphs."""

import pytest
import torch

from engine import LLM
from engine.models.catalog import PUBLISHED
from tests.equivalence.golden import golden_cases
from tests.equivalence.table import Row, assert_row

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device (make gpu)"),
    pytest.mark.skipif(not PUBLISHED["smollm2-135m"].is_pulled, reason="needs stepscope models pull smollm2-135m"),
]

ROWS = [
    Row(graphs=True, backend="native", padding=True, budget=None),
    Row(graphs=True, backend="vanilla", padding=True, budget=64),
    Row(graphs=False, backend="native", padding=False, budget=24),
    Row(graphs=True, backend="native", padding=False, budget=24),
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_greedy_tokens_equal_the_independent_reference_on_cuda(row):
    cases = [case for _prompt, case in golden_cases()]
    with LLM("smollm2-135m", row.config("cuda", max_seq_len=256)) as llm:
        assert_row(llm, row, cases)

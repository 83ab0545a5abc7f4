"""On CUDA, every combination gives the tokens of the plainest path on the CPU, with real graphs."""

import pytest
import torch

from engine import LLM, EngineConfig, SamplingParams
from tests.equivalence.table import FULL_PRODUCT, OVERLAP_ROWS, PREFILL_ROWS, assert_row, tiny_cases

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device (make gpu)"),
]


@pytest.fixture(scope="module")
def cases():
    return tiny_cases("cpu")


@pytest.mark.parametrize("row", FULL_PRODUCT + PREFILL_ROWS + OVERLAP_ROWS, ids=str)
def test_every_combination_gives_the_tokens_of_the_cpu(cases, row):
    with LLM("tiny", row.config("cuda")) as llm:
        assert llm.warmup_report.simulated is False
        assert_row(llm, row, cases)


def test_the_default_config_serves_on_cuda_in_bfloat16():
    with LLM("tiny", EngineConfig(device="cuda", max_seq_len=128)) as llm:
        outputs = llm.generate([[7, 8, 9]] * 5, SamplingParams(max_tokens=30, ignore_eos=True))
        assert len({out.token_ids for out in outputs}) == 1
        assert len(outputs[0].token_ids) == 30
        assert len(llm.warmup_report.captures) == 8
        assert llm.warmup_report.pool_bytes > 0


def test_a_seeded_sample_is_the_same_alone_and_in_company_on_cuda():
    params = SamplingParams(max_tokens=12, temperature=0.9, top_k=40, top_p=0.9, seed=11, repetition_penalty=1.2)
    with LLM("tiny", EngineConfig(device="cuda", dtype="float32", max_seq_len=128)) as llm:
        alone = llm.generate([[3, 4, 5]], params)[0].token_ids
        crowd = llm.generate([[9], [3, 4, 5], [1, 2]], [SamplingParams(), params, SamplingParams(temperature=1.0)])
    assert crowd[1].token_ids == alone

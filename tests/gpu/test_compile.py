"""A compiled body on CUDA: compiled in warm-up, captured, and equal by margin to the plainest path."""

import pytest
import torch

from engine import LLM, CudaGraphConfig, EngineConfig, SchedulerConfig
from engine.reasons import PathKind
from tests.equivalence.margin import PathCounter, assert_equal_by_margin
from tests.equivalence.table import tiny_cases

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device (make gpu)"),
]


@pytest.mark.parametrize("graphs", [True, False])
def test_a_compiled_body_gives_the_tokens_of_the_cpu_and_serving_compiles_nothing(graphs):
    from torch._dynamo.utils import counters

    cases = tiny_cases("cpu")
    config = EngineConfig(
        device="cuda",
        dtype="float32",
        max_seq_len=128,
        torch_compile=True,
        scheduler=SchedulerConfig(max_batch_size=8, max_num_tokens=64, chunking="fcfs"),
        cuda_graph=CudaGraphConfig(
            enabled=graphs, batch_sizes=(2, 8) if graphs else None, prefill_num_tokens=(64,) if graphs else ()
        ),
    )
    with LLM("tiny", config) as llm:
        rows = llm.loaded.model.compiled.rows
        assert rows == ({2, 8, 64} if graphs else {1, 2, 4, 8})
        assert len(llm.warmup_report.captures) == (4 if graphs else 0)
        before = counters["stats"]["unique_graphs"]
        assert before > 0
        counter = PathCounter()
        llm.set_probe(counter)
        compared = assert_equal_by_margin(llm, cases, together=True)
        llm.check()
        assert counters["stats"]["unique_graphs"] == before
    assert compared >= 0.9 * sum(len(case.greedy_ids) for case in cases)
    assert bool(counter.counts[PathKind.REPLAY.value]) == graphs
    assert bool(counter.counts[PathKind.PREFILL_REPLAY.value]) == graphs
    assert bool(counter.counts[PathKind.EAGER.value]) != graphs

import pytest
import torch

from engine.errors import ConfigError
from lab.bench.gpu import GpuBench, measure

SMALL = GpuBench(batches=(2,), prompt_len=4, new_tokens=4, rounds=1)


def test_the_tape_stands_in_for_the_shape_of_the_report():
    [row] = measure(SMALL, device="cpu")
    assert row.keys() == {"batch", "eager_tok_s", "graph_tok_s", "ratio"}
    assert row["batch"] == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_without_cuda_it_is_refused():
    with pytest.raises(ConfigError, match="cuda"):
        measure(SMALL)


@pytest.mark.gpu
def test_replay_is_not_slower_than_eager_by_an_order():
    [row] = measure(GpuBench(batches=(4,), rounds=1))
    assert row["ratio"] > 0.1

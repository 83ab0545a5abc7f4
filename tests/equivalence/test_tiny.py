"""One table: the plainest path gives the tokens that every combination of features must give.

Plainest: vanilla attention, eager, no padding, no chunking, one request at a time. Full product of graphs x backend x
padding x chunk budget, alone and in one continuous batch of 8. Each row asserts that its fast path fired.
"""

import itertools
import random

import pytest

from engine import LLM, CudaGraphConfig, EngineConfig, SchedulerConfig
from tests.equivalence.margin import PathCounter, assert_equal_by_margin, reference_cases

LENGTHS = (1, 3, 17, 40, 16, 33, 9, 64)
NUM_TOKENS = [24, 23, 20, 22, 17, 19, 21, 18]  # they leave one by one, so that every batch size from 8 to 1 occurs


def engine_config(*, graphs: bool, backend: str, padding: bool, budget: int | None) -> EngineConfig:
    return EngineConfig(
        device="cpu",
        max_seq_len=128,
        attention_backend=backend,
        scheduler=SchedulerConfig(
            max_batch_size=8, max_num_tokens=budget or 512, chunking=None if budget is None else "fcfs"
        ),
        cuda_graph=CudaGraphConfig(enabled=graphs, enable_padding=padding, batch_sizes=(1, 2, 4, 8)),
    )


@pytest.fixture(scope="module")
def cases():
    draw = random.Random(5)
    prompts = [[draw.randrange(1, 250) for _ in range(length)] for length in LENGTHS]
    with LLM("tiny", engine_config(graphs=False, backend="vanilla", padding=False, budget=None)) as llm:
        return reference_cases(llm, prompts, NUM_TOKENS)


def test_the_reference_is_worth_comparing(cases):
    assert len({case.greedy_ids for case in cases}) == len(cases)
    assert sum(min(case.margins) > 0.02 for case in cases) >= 5, "most cases compare to their end"
    assert all(len(set(case.greedy_ids)) > 3 for case in cases)


@pytest.mark.parametrize(
    ("graphs", "backend", "padding", "budget"),
    list(itertools.product((False, True), ("vanilla", "native"), (False, True), (None, 64, 24))),
)
def test_every_combination_gives_the_tokens_of_the_plainest_path(cases, graphs, backend, padding, budget):
    with LLM("tiny", engine_config(graphs=graphs, backend=backend, padding=padding, budget=budget)) as llm:
        counter = PathCounter()
        llm.set_probe(counter)
        alone = assert_equal_by_margin(llm, cases, together=False)
        together = assert_equal_by_margin(llm, cases, together=True)
        llm.check()
    assert min(alone, together) >= 0.9 * sum(NUM_TOKENS)
    counts = counter.counts
    assert bool(counter.num_replays) == graphs
    assert bool(counts["unfinished_chunk"]) == (budget is not None)
    assert bool(counts["padded"]) == (graphs and padding)
    assert bool(counts["refused:NO_EXACT_BUCKET_PADDING_OFF"]) == (graphs and not padding)
    assert counts["eager"] > 0, "prompts run eagerly in every combination"

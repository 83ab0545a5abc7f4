"""The table's rows on any device: one workload, one config for each combination, and what each row must show.

Plainest: vanilla attention, eager, no padding, no chunking, one request at a time.
"""

import dataclasses
import itertools
import random

from engine import LLM, CudaGraphConfig, EngineConfig, KVCacheConfig, SchedulerConfig
from tests.equivalence.margin import Case, PathCounter, assert_equal_by_margin, reference_cases

LENGTHS = (1, 3, 17, 40, 16, 33, 9, 64)
# The requests leave one by one, so that every batch size from 8 to 1 occurs.
NUM_TOKENS = [24, 23, 20, 22, 17, 19, 21, 18]


@dataclasses.dataclass(frozen=True)
class Row:
    """One combination. budget: max_num_tokens with chunking on, None for whole prompts. prefill: rows with a chain."""

    graphs: bool
    backend: str
    padding: bool
    budget: int | None
    prefill: tuple[int, ...] = ()
    overlap: bool = False

    def config(self, device: str, dtype: str = "float32", max_seq_len: int = 128) -> EngineConfig:
        return EngineConfig(
            device=device,
            dtype=dtype,
            max_seq_len=max_seq_len,
            attention_backend=self.backend,
            overlap=self.overlap,
            kv_cache=KVCacheConfig(enable_block_reuse=False),  # reuse has a table of its own (test_reuse.py)
            scheduler=SchedulerConfig(
                max_batch_size=8, max_num_tokens=self.budget or 512, chunking=None if self.budget is None else "fcfs"
            ),
            cuda_graph=CudaGraphConfig(
                enabled=self.graphs,
                enable_padding=self.padding,
                batch_sizes=(1, 2, 4, 8),
                prefill_num_tokens=self.prefill,
            ),
        )

    def __str__(self) -> str:
        prefill = f"-prefill={','.join(map(str, self.prefill))}" if self.prefill else ""
        features = prefill + "-overlap" * self.overlap
        return f"graphs={self.graphs}-{self.backend}-padding={self.padding}-budget={self.budget}{features}"


PLAINEST = Row(graphs=False, backend="vanilla", padding=False, budget=None)
FULL_PRODUCT = [
    Row(*values) for values in itertools.product((False, True), ("vanilla", "native"), (False, True), (None, 64, 24))
]
OVERLAP_ROWS = [dataclasses.replace(row, overlap=True) for row in FULL_PRODUCT]
# Chains that take every step with prompts, and chains that only take the smaller ones.
PREFILL_ROWS = [
    Row(graphs=True, backend=backend, padding=True, budget=budget, prefill=prefill)
    for backend in ("vanilla", "native")
    for budget, prefill in ((None, (16, 64)), (64, (8, 32, 64)), (64, (16,)), (24, (24,)), (24, (1, 7, 13)))
] + [Row(graphs=False, backend="native", padding=True, budget=24, prefill=(24,))]


def tiny_cases(device: str) -> list[Case]:
    """Run the plainest path on eight random prompts."""
    draw = random.Random(5)
    prompts = [[draw.randrange(1, 250) for _ in range(length)] for length in LENGTHS]
    with LLM("tiny", PLAINEST.config(device)) as llm:
        return reference_cases(llm, prompts, NUM_TOKENS)


def assert_row(llm: LLM, row: Row, cases: list[Case]) -> PathCounter:
    """Compare alone and in one continuous batch, and check that the row's own paths fired."""
    counter = PathCounter()
    llm.set_probe(counter)
    together = assert_equal_by_margin(llm, cases, together=True)  # first: afterwards every prompt is in the cache
    alone = assert_equal_by_margin(llm, cases, together=False)
    llm.check()
    assert min(alone, together) >= 0.9 * sum(len(case.greedy_ids) for case in cases)
    counts = counter.counts
    assert bool(counter.num_replays) == row.graphs
    assert bool(counts["unfinished_chunk"]) == (row.budget is not None)
    assert bool(counts["padded"]) == (row.graphs and row.padding)
    assert bool(counts["refused:NO_EXACT_BUCKET_PADDING_OFF"]) == (row.graphs and not row.padding)
    has_chain_for_all = row.graphs and row.prefill[-1:] == (row.budget or 512,)
    if not has_chain_for_all:
        assert counts["eager"] > 0, "prompts run eagerly wherever there is no chain"
    elif row.padding:
        assert counts["eager"] == 0
    assert bool(counts["prefill_replay"]) == (row.graphs and bool(row.prefill))
    assert bool(counts["refused:ABOVE_LARGEST_PREFILL_BUCKET"]) == (
        row.graphs and bool(row.prefill) and not has_chain_for_all
    )
    has_one_token_prompt = any(len(case.prompt_ids) == 1 for case in cases)
    assert bool(counts["promoted"]) == (row.graphs and has_one_token_prompt), "it runs alone, as a decode row"
    assert bool(counts["overlapped"]) == row.overlap
    num_steps = counts["eager"] + counts["prefill_replay"] + counter.num_replays
    assert counts["steady"] > 0.4 * num_steps, "most decode steps follow an equal one"
    return counter

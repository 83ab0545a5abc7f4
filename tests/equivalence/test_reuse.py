"""Conversations whose every turn begins with the turns before: reused blocks hold what would have been computed.

Whole blocks, beginnings of blocks, blocks that were on the host meanwhile; alone and in one batch; with a pool that
holds everything, and with the smallest legal one.
"""

import collections
import dataclasses
import itertools
import random

import pytest

from engine import LLM, CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.kv_cache.copies import CopyKind
from engine.probe import Stage
from tests.equivalence.margin import assert_equal_by_margin, reference_cases

MAX_SEQ_LEN, BLOCK = 96, 4
SMALLEST = MAX_SEQ_LEN // BLOCK


@dataclasses.dataclass(frozen=True)
class Row:
    partial: bool = True
    num_blocks: int = 400
    host_blocks: int = 0
    policy: str = "guaranteed_no_evict"
    budget: int | None = None
    graphs: bool = False
    overlap: bool = False
    backend: str = "native"
    lag: int = 0

    def config(self):
        chunking = None if self.budget is None else "fcfs"
        return EngineConfig(
            device="cpu",
            max_seq_len=MAX_SEQ_LEN,
            attention_backend=self.backend,
            overlap=self.overlap,
            scheduler=SchedulerConfig(
                max_batch_size=4,
                max_num_tokens=self.budget or 128,
                chunking=chunking,
                capacity_policy=self.policy,
            ),
            kv_cache=KVCacheConfig(
                tokens_per_block=BLOCK,
                num_blocks=self.num_blocks,
                host_blocks=self.host_blocks,
                enable_partial_reuse=self.partial,
            ),
            cuda_graph=CudaGraphConfig(enabled=self.graphs, batch_sizes=(1, 2, 4)),
        )


ROWS = [
    Row(),
    Row(partial=False, backend="vanilla"),
    Row(budget=12, graphs=True),
    Row(overlap=True, graphs=True),
    Row(overlap=True, lag=3, host_blocks=64, num_blocks=SMALLEST),
    Row(num_blocks=SMALLEST, budget=12),
    Row(num_blocks=SMALLEST, host_blocks=64, lag=10_000),
    Row(num_blocks=SMALLEST, host_blocks=64, budget=12, backend="vanilla", graphs=True),
    Row(num_blocks=SMALLEST, host_blocks=6, partial=False),
    Row(num_blocks=SMALLEST, policy="max_utilization", budget=16),
    Row(num_blocks=SMALLEST, host_blocks=64, policy="max_utilization", overlap=True),
]


class ReuseCounter:
    """Counts what reservations granted, and the prompt rows that ran."""

    def __init__(self):
        self.counts = collections.Counter()

    def emit(self, stage: Stage, step: int, value: object) -> None:
        if stage is Stage.RESERVED:
            self.counts["credit"] += sum(tokens for _, tokens in value.credits)
            self.counts.update(copy.kind for copy in value.block_copies)


def conversations(answer):
    """Three turns of three conversations, two of which begin with the same words. answer: of a prompt, n tokens."""
    draw = random.Random(7)
    words = [draw.randrange(1, 250) for _ in range(200)]
    beginnings = [words[:18], [*words[:11], *words[40:47]], words[60:77]]
    talks, turns = [[], [], []], []
    for turn, talk in itertools.product(range(3), range(3)):
        said = words[100 + 10 * turn : 107 + 10 * turn] if turn else beginnings[talk]
        talks[talk] = [*talks[talk], *said]
        case = answer(talks[talk], 9)
        talks[talk] = [*talks[talk], *case.greedy_ids]
        turns.append(case)
    assert max(map(len, talks)) <= MAX_SEQ_LEN
    return turns


def reference_turns():
    """The turns with the answers of the plainest path, which computes every prompt."""
    plain = Row(backend="vanilla").config()
    plain = dataclasses.replace(plain, kv_cache=KVCacheConfig(tokens_per_block=BLOCK, enable_block_reuse=False))
    with LLM("tiny", plain) as llm:
        return conversations(lambda prompt, count: reference_cases(llm, [prompt], [count])[0])


@pytest.fixture(scope="module")
def cases():
    return reference_turns()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_reused_blocks_give_the_tokens_that_computed_ones_give(cases, row):
    counter = ReuseCounter()
    with LLM("tiny", row.config(), stream_lag=row.lag) as llm:
        llm.set_probe(counter)
        alone = assert_equal_by_margin(llm, cases, together=False)
        counts = collections.Counter(counter.counts)
        together = assert_equal_by_margin(llm, cases, together=True)
        llm.check()
    assert min(alone, together) >= 0.9 * sum(len(case.greedy_ids) for case in cases)
    num_prompt_tokens = sum(len(case.prompt_ids) for case in cases)
    if row.num_blocks > SMALLEST or row.host_blocks > 6:
        assert counts["credit"] > 0.5 * num_prompt_tokens
    assert counts["credit"] > 0
    assert bool(counter.counts[CopyKind.DEVICE]) == row.partial
    assert bool(counter.counts[CopyKind.OFFLOAD]) == bool(counter.counts[CopyKind.ONBOARD]) == bool(row.host_blocks)


def test_without_reuse_nothing_is_credited(cases):
    config = dataclasses.replace(Row().config(), kv_cache=KVCacheConfig(enable_block_reuse=False))
    counter = ReuseCounter()
    with LLM("tiny", config) as llm:
        llm.set_probe(counter)
        assert_equal_by_margin(llm, cases, together=False)
    assert not counter.counts["credit"]


def test_cached_tokens_are_those_of_full_blocks_and_never_the_whole_prompt(cases):
    prompt = list(cases[0].prompt_ids)
    assert len(prompt) == 4 * BLOCK + 2
    with LLM("tiny", Row().config()) as llm:
        served = [llm.generate([some], SamplingParams(max_tokens=2))[0] for some in (prompt, prompt, prompt[:-2])]
    assert [output.cached_tokens for output in served] == [0, 4 * BLOCK, 4 * BLOCK - 1]

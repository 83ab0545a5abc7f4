"""Every capacity policy and chunking rule writes the same text, in a roomy pool and in the smallest legal one."""

import random

import pytest

from engine import LLM
from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SchedulerConfig
from engine.probe import Stage
from tests.equivalence.margin import assert_equal_by_margin, reference_cases

LENGTHS, NUM_TOKENS = (3, 20, 17, 33), (50, 45, 60, 63)
MAX_SEQ_LEN, SMALLEST = 96, 6  # tokens; blocks that hold one sequence of so many, which the last request fills
POLICIES = ("guaranteed_no_evict", "static_batch", "max_utilization")


class Counter:
    """A probe that counts pauses and steps that several requests shared."""

    def __init__(self) -> None:
        self.num_paused = self.num_shared_steps = 0

    def emit(self, stage, step, value):
        if stage is Stage.SCHEDULED:
            self.num_paused += len(value.paused_requests)
            self.num_shared_steps += value.num_requests > 1


def engine(policy, num_blocks, *, chunking=None, overlap=False, graphs=True):
    return LLM(
        "tiny",
        EngineConfig(
            max_seq_len=MAX_SEQ_LEN,
            overlap=overlap,
            scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=64, capacity_policy=policy, chunking=chunking),
            kv_cache=KVCacheConfig(num_blocks=num_blocks),
            cuda_graph=CudaGraphConfig(enabled=graphs, batch_sizes=(1, 4)),
        ),
    )


@pytest.fixture(scope="module")
def cases():
    draw = random.Random(11)
    prompts = [[draw.randrange(1, 250) for _ in range(length)] for length in LENGTHS]
    with engine("guaranteed_no_evict", 100, graphs=False) as llm:
        return reference_cases(llm, prompts, list(NUM_TOKENS))


@pytest.mark.parametrize("overlap", [False, True], ids=["", "overlap"])
@pytest.mark.parametrize("num_blocks", [pytest.param(60, marks=pytest.mark.slow), SMALLEST])
@pytest.mark.parametrize("chunking", [None, "fcfs", "equal_progress"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_writes_the_text_of_the_plainest_path(cases, policy, chunking, num_blocks, overlap):
    with engine(policy, num_blocks, chunking=chunking, overlap=overlap) as llm:
        counter = Counter()
        llm.set_probe(counter)
        compared = assert_equal_by_margin(llm, cases, together=True)
        llm.check()
    assert compared >= 0.9 * sum(NUM_TOKENS)
    assert (counter.num_paused > 0) == (policy == "max_utilization" and num_blocks == SMALLEST)
    assert counter.num_shared_steps > 0 or num_blocks == SMALLEST

import pytest

from engine import LLM, EngineConfig
from engine.config import CudaGraphConfig, SamplingParams, SchedulerConfig
from engine.decisions import Decisions
from engine.inputs.steady import SteadyRefusal
from lab.bench.decode import prompt_ids
from lab.bench.direct import GrowingTables, StepKeeper, _advance, _prepare, _recorded, full_seconds, steady_seconds

CONFIG = EngineConfig(
    device="cpu",
    max_seq_len=64,
    scheduler=SchedulerConfig(max_batch_size=3, max_num_tokens=64),
    cuda_graph=CudaGraphConfig(batch_sizes=(3,)),
)
TABLES = {7: (0, 1), 8: (2,), 9: (3,)}


@pytest.fixture
def kept():
    keeper = StepKeeper()
    decisions = Decisions(pack=keeper.pack, why_not_use_steady=lambda *_: SteadyRefusal.NOTHING_RECORDED)
    with LLM("tiny", CONFIG, decisions=decisions) as llm:
        for prompt in prompt_ids(3, 6, 256):
            llm.submit(prompt, SamplingParams(max_tokens=20, ignore_eos=True))
        llm.step()
        llm.set_probe(keeper)
        llm.step()
        llm.set_probe(None)
        yield keeper.kept(llm, is_spread=True)


def test_the_calls_do_to_the_metadata_what_the_engine_does(kept):
    step, tables = kept
    metadata = step.plan.metadata
    _prepare(step, tables)
    assert metadata.kv_lens.tolist() == [7, 7, 7]
    path = _recorded(step, tables)
    for turn in range(1, 10):
        tables.grow()
        _advance(step, tables, path)
        assert metadata.kv_lens.tolist() == [7 + turn] * 3
        metadata.check()
    assert step.preparer.buffers.position_ids[0, 0, :3].tolist() == [6 + 9] * 3


def test_both_paths_take_time(kept):
    step, tables = kept
    assert full_seconds(step, tables, num_samples=3) > 0
    assert steady_seconds(step, tables, num_samples=3) > 0


def test_sequences_take_turns_to_grow():
    tables = GrowingTables(TABLES, 2, is_spread=True)
    before = {i: tables.block_table(i) for i in TABLES}
    tables.grow()
    assert tables.changed_since(0) == {8}
    tables.grow()
    assert tables.changed_since(1) == {7, 9}
    assert all(tables.block_table(i) == before[i] and tables.block_table(i) is not before[i] for i in TABLES)


def test_sequences_that_end_together_do_not_grow_in_the_median_step():
    tables = GrowingTables(TABLES, 2, is_spread=False)
    before = tables.block_table(7)
    tables.grow()
    assert tables.changed_since(0) == frozenset()
    assert tables.block_table(7) is before

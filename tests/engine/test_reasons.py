import pytest

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.llm import LLM
from engine.llm_request import RequestState
from engine.probe import Stage
from engine.reasons import DeferralReason, FallOff, PathKind
from tests.engine.live_requests import World, waiting
from tests.equivalence.margin import assert_equal_by_margin, reference_cases


@pytest.mark.parametrize("kind", [DeferralReason, FallOff])
def test_a_reason_is_its_own_name_so_that_traces_can_be_read(kind):
    assert {member.value for member in kind} == {member.name for member in kind}


def test_paths_are_named_as_the_command_line_prints_them():
    assert [path.value for path in PathKind] == ["eager", "capture", "replay", "prefill_replay"]


class ScheduleLog:
    """A probe that keeps what the schedulers said."""

    def __init__(self) -> None:
        self.reasons: set[DeferralReason] = set()
        self.num_paused = self.num_rows = 0

    def emit(self, stage, step, value):
        if stage is Stage.SCHEDULED:
            self.reasons |= {deferral.reason for deferral in value.deferrals}
            self.num_paused += len(value.paused_requests)
            self.num_rows += value.num_tokens


def _prompts(*lengths, max_tokens=4):
    return [waiting(i, prompt_len=length, max_tokens=max_tokens) for i, length in enumerate(lengths)]


# The smallest world and prompt lengths that meet each reason.
REACHED_BY = {
    DeferralReason.NO_FREE_BLOCKS: (lambda: World(num_blocks=6), (12, 12)),
    DeferralReason.BEHIND_BLOCKED_REQUEST: (lambda: World(max_batch_size=1), (4, 4, 4)),
    DeferralReason.TOKEN_BUDGET: (lambda: World(max_num_tokens=16), (16, 4)),
    DeferralReason.REQUEST_BUDGET: (lambda: World(max_batch_size=2), (4, 4, 4)),
    DeferralReason.CHUNK_TRUNCATED: (lambda: World(max_num_tokens=16), (20,)),
    DeferralReason.WAITS_FOR_BATCH: (lambda: World(max_batch_size=2, policy="static_batch"), (4, 4, 4)),
    DeferralReason.NO_BLOCKS_FOR_STEP: (lambda: World(num_blocks=6, policy="max_utilization"), (12, 12)),
    DeferralReason.PAUSED: (
        lambda: World(num_blocks=3, tokens_per_block=16, max_num_tokens=64, policy="max_utilization"),
        (15, 15),
    ),
    DeferralReason.AWAITS_SHARED_PREFIX: (lambda: World(reuse=True), (40, 41)),
}


@pytest.mark.parametrize("reason", DeferralReason)
def test_every_deferral_is_reached_by_a_workload_and_passes(reason):
    make_world, lengths = REACHED_BY[reason]
    world = make_world()
    world.active = _prompts(*lengths)
    met = set()
    for _ in range(100):
        met |= {deferral.reason for deferral in world.step().deferrals}
        if not world.active:
            break
    assert reason in met
    assert sorted(world.finished) == list(range(len(lengths)))


def small_engine(policy, num_blocks, **more):
    scheduler = SchedulerConfig(
        max_batch_size=4, max_num_tokens=64, capacity_policy=policy, chunking=more.pop("chunking", None)
    )
    pool, graphs = KVCacheConfig(num_blocks=num_blocks), CudaGraphConfig(enabled=False)
    return LLM("tiny", EngineConfig(max_seq_len=128, scheduler=scheduler, kv_cache=pool, cuda_graph=graphs, **more))


@pytest.fixture(scope="module")
def cases():
    with small_engine("guaranteed_no_evict", 100) as llm:
        return reference_cases(llm, [[i + 1, 2, 3] * (4 + i) for i in range(4)], [40] * 4)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("chunking", [None, "fcfs", "equal_progress"])
def test_an_engine_whose_pool_is_too_small_pauses_says_so_and_writes_the_same(overlap, chunking, cases):
    with small_engine("max_utilization", 10, overlap=overlap, chunking=chunking) as llm:
        log = ScheduleLog()
        llm.set_probe(log)
        compared = assert_equal_by_margin(llm, cases, together=True)
        llm.check()
    assert compared >= 150
    assert log.num_paused > 0
    assert {DeferralReason.PAUSED, DeferralReason.NO_BLOCKS_FOR_STEP} <= log.reasons
    assert log.num_rows > sum(len(case.prompt_ids) + 39 for case in cases), "nothing was computed again"


@pytest.mark.parametrize("overlap", [False, True])
def test_an_engine_computes_a_shared_beginning_once(overlap):
    def serve(reuse):
        scheduler = SchedulerConfig(max_batch_size=4, max_num_tokens=32, chunking="fcfs")
        pool = KVCacheConfig(num_blocks=100, enable_block_reuse=reuse)
        config = EngineConfig(max_seq_len=256, overlap=overlap, scheduler=scheduler, kv_cache=pool)
        with LLM("tiny", config) as llm:
            log = ScheduleLog()
            llm.set_probe(log)
            outputs = llm.generate([[*range(100), last] for last in (1, 2, 3)], SamplingParams(max_tokens=4))
            llm.check()
        return [output.cached_tokens for output in outputs], log

    cached, log = serve(reuse=True)
    assert DeferralReason.AWAITS_SHARED_PREFIX in log.reasons
    assert cached == [0, 96, 96], "all whole blocks"
    assert DeferralReason.AWAITS_SHARED_PREFIX not in serve(reuse=False)[1].reasons


def test_a_running_request_is_never_deferred_by_a_newcomer():
    world = World(num_blocks=8, max_batch_size=2)
    world.active = _prompts(8, 8, max_tokens=5)
    world.step()
    assert {request.state for request in world.active} == {RequestState.GENERATION_IN_PROGRESS}
    world.active.insert(0, waiting(9, prompt_len=8))
    scheduled = world.step()
    assert [span.request_id for span in scheduled.spans] == [0, 1]
    assert [deferral.request_id for deferral in scheduled.deferrals] == [9]

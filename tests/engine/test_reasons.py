import pytest

from engine.llm_request import RequestState
from engine.reasons import DeferralReason, FallOff, PathKind
from tests.engine.live_requests import World, waiting


@pytest.mark.parametrize("kind", [DeferralReason, FallOff])
def test_a_reason_is_its_own_name_so_that_traces_can_be_read(kind):
    assert {member.value for member in kind} == {member.name for member in kind}


def test_paths_are_named_as_the_command_line_prints_them():
    assert [path.value for path in PathKind] == ["eager", "capture", "replay", "prefill_replay"]


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


def test_a_running_request_is_never_deferred_by_a_newcomer():
    world = World(num_blocks=8, max_batch_size=2)
    world.active = _prompts(8, 8, max_tokens=5)
    world.step()
    assert {request.state for request in world.active} == {RequestState.GENERATION_IN_PROGRESS}
    world.active.insert(0, waiting(9, prompt_len=8))
    scheduled = world.step()
    assert [span.request_id for span in scheduled.spans] == [0, 1]
    assert [deferral.request_id for deferral in scheduled.deferrals] == [9]

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import RequestState
from engine.reasons import DeferralReason
from engine.scheduled import Deferral
from engine.scheduler.block_needs import blocks_for_step, blocks_of_life
from engine.scheduler.capacity import CapacityScheduler
from engine.scheduler.utilization import fit_running, reserve_for
from tests.engine.live_requests import TOKEN, World, running, started_or_not, waiting

STEP, PAUSED, PLACES = DeferralReason.NO_BLOCKS_FOR_STEP, DeferralReason.PAUSED, DeferralReason.REQUEST_BUDGET
BEHIND = DeferralReason.BEHIND_BLOCKED_REQUEST


def full_pool(*owned, num_free=0):
    """A pool of 4-token blocks in which ``owned`` (request id, tokens) are reserved and ``num_free`` are left."""
    kv = KVCacheManager(num_blocks=sum(-(-n // 4) for _, n in owned) + num_free, tokens_per_block=4, max_seq_len=1024)
    for request_id, num_tokens in owned:
        kv.reserve(request_id, num_tokens)
    return kv


def decide(active, kv, *, max_batch_size=8):
    scheduler = CapacityScheduler("max_utilization")
    return scheduler.schedule(*started_or_not(active, kv), kv, max_batch_size=max_batch_size)


def test_requests_that_find_their_blocks_run_on():
    kv = full_pool((1, 20), (2, 24), num_free=1)
    kept = fit_running([running(1), running(2)], kv)
    assert [r.request_id for r in kept.fitting] == [1, 2]
    assert (kept.paused, kept.held_back, kept.num_free_blocks) == ((), (), 0)


def test_nobody_is_asked_where_a_block_each_is_free_and_the_rest_does_not_matter(monkeypatch):
    asked = []
    monkeypatch.setattr("engine.scheduler.utilization.blocks_for_step", lambda r, kv: asked.append(r) or 1)
    batch, kv = [running(1), running(2)], full_pool((1, 20), (2, 24), num_free=2)
    assert fit_running(batch, kv, exact=False).fitting == tuple(batch)
    assert asked == []
    fit_running(batch, full_pool((1, 20), (2, 24), num_free=1), exact=False)
    assert asked == batch


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), min_size=1, max_size=6), st.integers(0, 4))
def test_knowing_who_lacks_a_block_changes_nothing(requests, num_free):
    batch = [running(i, generated=generated) for i, (generated, _) in enumerate(requests)]
    kv = full_pool(*[(i, 20 + more) for i, (_, more) in enumerate(requests)], num_free=num_free)
    lacking = [request for request in batch if blocks_for_step(request, kv)]
    expected = fit_running(batch, kv)
    assert fit_running(batch, kv, lacking=lambda: lacking) == expected
    assert fit_running(batch, kv, lacking=lambda: None) == expected


def test_only_those_who_lack_a_block_are_asked_where_they_are_known(monkeypatch):
    asked = []
    monkeypatch.setattr("engine.scheduler.utilization.blocks_for_step", lambda r, kv: asked.append(r) or 1)
    kv, batch, prompt = full_pool((1, 20), (2, 24), (3, 4), num_free=3), [running(1), running(2)], waiting(3)
    kept = fit_running([*batch, prompt], kv, lacking=lambda: batch[:1])
    assert (kept.fitting, kept.num_free_blocks) == ((*batch, prompt), 1)
    assert asked == [prompt, batch[0]]


def test_the_last_started_request_is_paused_and_the_same_one_asks_again():
    kv = full_pool((1, 20), (2, 24), (3, 24))
    first, second, third = running(1), running(2), running(3)
    kept = fit_running([first, second, third], kv)
    assert kept.fitting == (first, second)
    assert kept.paused == (third,)
    assert kept.held_back == (Deferral(3, PAUSED, needed=1, available=0),)
    assert kept.num_free_blocks == 5


def test_the_last_request_that_lacks_blocks_is_paused_itself():
    kv = full_pool((1, 24), (2, 20))
    kept = fit_running([running(1), running(2)], kv)
    assert [r.request_id for r in kept.fitting] == [1]
    assert kept.held_back == (Deferral(2, PAUSED, 1, 0),)


def test_several_are_paused_youngest_first_and_reported_oldest_first():
    kv = full_pool((1, 4), (2, 4), (3, 4))
    kept = fit_running([waiting(1, prompt_len=12, position=4), running(2, prompt_len=3), running(3, prompt_len=3)], kv)
    assert [r.request_id for r in kept.paused] == [2, 3]
    assert kept.held_back == (Deferral(3, PAUSED, 2, 0), Deferral(2, PAUSED, 2, 1))
    assert kept.num_free_blocks == 0


def test_a_shared_block_comes_back_with_the_last_that_holds_it():
    kv = KVCacheManager(num_blocks=8, tokens_per_block=4, max_seq_len=1024)
    batch = [running(1, prompt_len=8), running(2, prompt_len=8), running(3, prompt_len=8)]
    for request, num_tokens in zip(batch, (8, 12, 12), strict=True):
        kv.claim([(request, 1)], [])
        kv.reserve(request.request_id, num_tokens)
        kv.commit(request.request_id, 8)
    assert kv.block_table(1)[0] == kv.block_table(3)[0], "nothing is shared"
    kv.reserve(9, 4 * kv.num_free_blocks)
    kept = fit_running(batch, kv)
    assert [r.request_id for r in kept.paused] == [3]
    kv.free(3)
    assert kept.num_free_blocks == kv.num_free_blocks - 1, "the oldest took one of those that came back"


def test_the_oldest_is_never_paused_but_waits_for_one_that_ends():
    kv = full_pool((1, 20), (9, 20))
    ending = running(9)
    ending.move_to(RequestState.GENERATION_TO_COMPLETE)
    decision = decide([running(1), ending], kv)
    assert (decision.fitting, decision.paused) == ((), ())
    assert decision.deferrals == (Deferral(1, STEP, needed=1, available=0),)


def test_a_newcomer_is_let_in_without_blocks_for_its_whole_life():
    kv = full_pool((1, 24), num_free=9)
    first, newcomer = running(1), waiting(2, prompt_len=20, max_tokens=200)
    assert decide([first, newcomer], kv).fitting == (first, newcomer)
    assert CapacityScheduler().schedule((first,), (newcomer,), kv, max_batch_size=8).fitting == (first,)


def test_a_newcomer_leaves_a_reserve_to_those_that_run():
    kv = full_pool((1, 24), num_free=8)
    decision = decide([running(1), waiting(2), waiting(3, max_tokens=1)], kv)
    assert [r.request_id for r in decision.fitting] == [1]
    assert decision.deferrals == (Deferral(2, STEP, needed=5, available=4), Deferral(3, BEHIND, 5, 4))


def test_the_reserve_is_a_block_for_each_block_of_tokens_to_come():
    assert [reserve_for(count, 16) for count in (0, 1, 10)] == [0, 1, 10]
    assert [reserve_for(count, 512) for count in (0, 1, 32, 33)] == [0, 1, 1, 2]
    assert reserve_for(3, 4) == 12


def test_alone_a_newcomer_needs_no_reserve():
    kv = full_pool(num_free=5)
    assert decide([waiting(1)], kv).fitting != ()


def test_nobody_is_let_in_in_a_step_that_pauses():
    kv = full_pool((1, 20), (2, 40))
    decision = decide([running(1), running(2, prompt_len=39), waiting(3, prompt_len=2)], kv)
    assert [r.request_id for r in decision.paused] == [2]
    assert decision.deferrals == (Deferral(2, PAUSED, 1, 0), Deferral(3, BEHIND, 3, 9))


def test_a_full_batch_lets_nobody_in():
    kv = full_pool((1, 24), num_free=90)
    assert decide([running(1), waiting(2)], kv, max_batch_size=1).deferrals == (Deferral(2, PLACES, 1, 0),)


states = st.tuples(st.integers(1, 30), st.integers(0, 12), st.booleans())


@settings(deadline=None)
@given(st.lists(states, max_size=7), st.integers(0, 12))
def test_the_walk_keeps_the_oldest_and_spends_no_block_twice(requests, num_free):
    batch = []
    for i, (prompt_len, generated, is_context) in enumerate(requests):
        if is_context:
            batch.append(waiting(i, prompt_len=prompt_len, position=min(generated, prompt_len - 1)))
        else:
            batch.append(running(i, prompt_len=prompt_len, max_tokens=20, generated=1 + generated))
    owned = [r.context_current_position if r.is_context else r.num_tokens - 1 for r in batch]
    kv = full_pool(*[(r.request_id, max(1, n)) for r, n in zip(batch, owned, strict=True)], num_free=num_free)
    kept = fit_running(batch, kv)
    assert kept.fitting == tuple(batch[: len(kept.fitting)])
    assert kept.paused == tuple(batch[len(batch) - len(kept.paused) :])
    assert not batch or batch[0] not in kept.paused
    spent = sum(blocks_for_step(r, kv) for r in kept.fitting)
    freed = sum(kv.num_reserved_blocks(r.request_id) for r in kept.paused)
    assert kept.num_free_blocks == kv.num_free_blocks + freed - spent >= 0
    assert len(kept.fitting) + len(kept.held_back) == len(batch)
    assert all(d.needed > d.available for d in kept.held_back)
    if not kept.paused and batch and kept.fitting == tuple(batch):
        assert not kept.held_back


lengths = st.tuples(st.integers(1, 30), st.integers(1, 14))


@settings(deadline=None, max_examples=80)
@given(
    st.lists(lengths, min_size=1, max_size=8),
    st.integers(0, 6),
    st.integers(0, 12),
    st.sampled_from([(None, 12), (None, 33), ("fcfs", 6), ("fcfs", 24), ("equal_progress", 6), ("equal_progress", 24)]),
    st.tuples(st.booleans(), st.integers(0, 3)),
)
def test_any_pool_that_holds_the_largest_request_finishes_everything(requests, gap, spare, budget, reuse_and_drafts):
    (chunking, num_tokens), (reuse, draft_len) = budget, reuse_and_drafts
    pending = [
        waiting(i, prompt_len=min(prompt, num_tokens if chunking is None else 30), max_tokens=new, draft_tokens=draft)
        for i, (prompt, new) in enumerate(requests)
        for draft in [(TOKEN,) * 9 if i % 2 else ()]
    ]
    probe = KVCacheManager(num_blocks=1, tokens_per_block=4, max_seq_len=1024)
    num_blocks = max(blocks_of_life(request, probe) for request in pending) + spare
    world = World(
        num_blocks=num_blocks,
        max_batch_size=3,
        max_num_tokens=num_tokens,
        chunking=chunking,
        policy="max_utilization",
        draft_len=draft_len,
        reuse=reuse,
    )
    num_arrived = num_rows = 0
    for step in range(3_000):
        if pending and step >= gap * num_arrived:
            world.active.append(pending.pop(0))
            num_arrived += 1
        oldest = world.active[0] if world.active else None
        scheduled = world.step()
        num_rows += scheduled.num_tokens
        if oldest is not None:
            assert oldest in [span.request for span in scheduled.spans], "the oldest request stood still"
        if not pending and not world.active:
            break
    assert sorted(world.finished) == list(range(len(requests)))
    assert world.kv.num_free_blocks == num_blocks
    assert world.num_paused or num_rows <= sum(p + n * (1 + draft_len) for p, n in requests)


def test_a_small_pool_pauses_and_computes_again():
    world = World(num_blocks=14, max_batch_size=4, policy="max_utilization")
    world.active = [waiting(i, prompt_len=8, max_tokens=24) for i in range(4)]
    num_rows = 0
    while world.active:
        num_rows += world.step().num_tokens
    assert world.num_paused > 0
    assert num_rows > 4 * (8 + 23)
    assert world.finished[0] == 0


@pytest.mark.parametrize("policy", ["guaranteed_no_evict", "max_utilization"])
def test_drafts_save_steps_and_never_run_out_of_blocks(policy):
    def count_steps(draft_tokens):
        world = World(num_blocks=12, policy=policy, draft_len=3)
        world.active = [waiting(i, prompt_len=5, max_tokens=15, draft_tokens=draft_tokens) for i in range(4)]
        steps = 0
        while world.active:
            world.step()
            steps += 1
        return steps, world.num_accepted

    plain, right, wrong = count_steps(()), count_steps((TOKEN,) * 15), count_steps((TOKEN + 1,) * 15)
    assert plain[1] == wrong[1] == 0
    assert right[1] > 10
    assert right[0] < plain[0]

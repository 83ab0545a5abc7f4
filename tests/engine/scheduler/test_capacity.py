import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import RequestState
from engine.reasons import DeferralReason
from engine.scheduled import Deferral
from engine.scheduler import block_needs, capacity, deferrals
from engine.scheduler.block_needs import blocks_to_completion
from engine.scheduler.capacity import CapacityScheduler
from tests.engine.live_requests import TOKEN, World, reasons, running, started_or_not, waiting

BLOCKS, PLACES = DeferralReason.NO_FREE_BLOCKS, DeferralReason.REQUEST_BUDGET
BEHIND, WAITS = DeferralReason.BEHIND_BLOCKED_REQUEST, DeferralReason.WAITS_FOR_BATCH


def pool(num_blocks=10, *owned):
    """A pool of 4-token blocks in which ``owned`` (request id, tokens) are reserved."""
    kv = KVCacheManager(num_blocks=num_blocks, tokens_per_block=4, max_seq_len=1024, enable_block_reuse=False)
    for request_id, num_tokens in owned:
        kv.reserve(request_id, num_tokens)
    return kv


def decide(active, kv, *, policy="guaranteed_no_evict", max_batch_size=8):
    return CapacityScheduler(policy).schedule(*started_or_not(active, kv), kv, max_batch_size=max_batch_size)


def test_everything_fits_in_arrival_order_with_running_requests_first():
    kv = pool(40, (2, 20), (3, 8))
    newcomer, generation, chunked = waiting(1), running(2), waiting(3, position=8)
    decision = decide([newcomer, generation, chunked], kv)
    assert decision.fitting == (generation, chunked, newcomer)
    assert decision.deferrals == ()
    assert decision.paused == ()


def test_a_newcomer_waits_for_blocks_that_are_free_now_but_promised():
    kv = pool(8, (1, 21))  # 6 owned, 2 free, and request 1 may still want 2 more
    first, newcomer = running(1, prompt_len=20, max_tokens=13), waiting(2, prompt_len=4, max_tokens=1)
    decision = decide([first, newcomer], kv)
    assert decision.fitting == (first,)
    assert decision.deferrals == (Deferral(2, BLOCKS, needed=1, available=0),)


def test_the_promise_counts_the_written_positions_only():
    kv = pool(8, (1, 21))
    first, newcomer = running(1, prompt_len=20, max_tokens=9), waiting(2, prompt_len=4, max_tokens=1)
    assert decide([first, newcomer], kv).fitting == (first, newcomer)


def test_nobody_overtakes_the_first_request_that_does_not_fit():
    kv = pool(6)
    big, small, tiny = waiting(1, prompt_len=30), waiting(2, prompt_len=4, max_tokens=1), waiting(3, prompt_len=1)
    decision = decide([big, small, tiny], kv)
    assert decision.fitting == ()
    assert decision.deferrals == (Deferral(1, BLOCKS, 10, 6), Deferral(2, BEHIND, 1, 6), Deferral(3, BEHIND, 3, 6))


def test_a_full_batch_lets_nobody_in():
    kv = pool(100, (1, 20), (2, 20))
    decision = decide([running(1), running(2), waiting(3)], kv, max_batch_size=2)
    assert decision.deferrals == (Deferral(3, PLACES, needed=1, available=0),)


def test_every_newcomer_counts_against_the_batch():
    decision = decide([waiting(1), waiting(2), waiting(3), waiting(4)], pool(100), max_batch_size=2)
    assert [r.request_id for r in decision.fitting] == [1, 2]
    assert reasons(decision.deferrals) == {3: PLACES, 4: BEHIND}


def test_a_started_prompt_has_its_place_already():
    kv = pool(100, (1, 20), (2, 8))
    decision = decide([running(1), waiting(2, position=8)], kv, max_batch_size=2)
    assert [r.request_id for r in decision.fitting] == [1, 2]


def test_requests_that_will_not_run_again_are_left_out():
    kv = pool(100, (1, 20), (2, 20))
    ending, ended = running(1), running(2)
    ending.move_to(RequestState.GENERATION_TO_COMPLETE)
    ended.move_to(RequestState.GENERATION_COMPLETE)
    decision = decide([ending, ended], kv)
    assert (decision.fitting, decision.deferrals) == ((), ())


def test_a_static_batch_lets_nobody_in_while_it_runs():
    kv = pool(100, (1, 20), (2, 8))
    active = [running(1), waiting(2, position=8), waiting(3), waiting(4)]
    decision = decide(active, kv, policy="static_batch")
    assert [r.request_id for r in decision.fitting] == [1, 2]
    assert decision.deferrals == (Deferral(3, WAITS, needed=2, available=0), Deferral(4, WAITS, 2, 0))


def test_a_static_batch_starts_with_all_that_fit():
    decision = decide([waiting(1), waiting(2), waiting(3)], pool(16), policy="static_batch")
    assert [r.request_id for r in decision.fitting] == [1, 2]
    assert decision.deferrals == (Deferral(3, BLOCKS, 8, 0),)


def test_the_deferrals_of_a_blocked_queue_follow_every_change():
    scheduler, kv = CapacityScheduler(), pool(6)
    queue = (waiting(1, prompt_len=30), waiting(2, prompt_len=4, max_tokens=1))

    def deferrals(queue, places=1):
        return scheduler.schedule((), queue, kv, max_batch_size=places).deferrals

    first = deferrals(queue)
    assert deferrals(queue) is first
    assert deferrals(list(queue)) == first
    assert deferrals((*queue, waiting(3)))[2].request_id == 3
    assert deferrals(queue[:1]) == first[:1]
    assert reasons(deferrals(queue)) == {1: BLOCKS, 2: BEHIND}
    assert deferrals(queue, places=0) == (Deferral(1, PLACES, 1, 0), Deferral(2, BEHIND, 1, 0))
    kv.reserve(9, 4)
    assert deferrals(queue) == (Deferral(1, BLOCKS, 10, 5), Deferral(2, BEHIND, 1, 5))
    assert first == (Deferral(1, BLOCKS, 10, 6), Deferral(2, BEHIND, 1, 6)), "a record changed after it was handed out"


@pytest.mark.parametrize("policy", ["guaranteed_no_evict", "max_utilization"])
def test_what_others_own_costs_a_newcomer_nothing_and_what_is_merely_cached_does(policy):
    kv = KVCacheManager(num_blocks=8, tokens_per_block=4, max_seq_len=1024)
    first, second = waiting(1, max_tokens=1), waiting(2, prompt_len=24, max_tokens=1)
    kv.claim([(first, 20)], [])
    kv.reserve(1, 20)
    kv.commit(1, 20)
    first.context_current_position = 16
    assert kv.num_free_blocks == 3
    assert decide([first, second], kv, policy=policy, max_batch_size=2).fitting == (
        (first, second) if policy == "guaranteed_no_evict" else (first,)
    )
    kv.free(1)
    kv.reserve(9, 12)
    assert (kv.num_free_blocks, kv.reusable_tokens(second)) == (5, 20)
    decision = decide([second], kv, policy=policy)
    assert (decision.deferrals[0].needed, decision.deferrals[0].available) == (6, 5)


@pytest.mark.parametrize("policy", ["guaranteed_no_evict", "static_batch", "max_utilization"])
@pytest.mark.parametrize(("num_blocks", "places"), [(16, 8), (100, 2), (8, 0)])
def test_who_waits_behind_is_not_looked_at(policy, num_blocks, places, monkeypatch):
    kv, queue = pool(num_blocks), tuple(waiting(i) for i in range(2_000))
    looked_at = set()
    for need in (block_needs.blocks_to_completion, block_needs.blocks_for_step, block_needs.blocks_of_life):
        for module in (capacity, deferrals):
            if hasattr(module, need.__name__):
                monkeypatch.setattr(module, need.__name__, watched(need, looked_at))
    decision = CapacityScheduler(policy).schedule((), queue, kv, max_batch_size=places)
    num_deferred = 2_000 - len(decision.fitting)
    assert len(decision.deferrals) == num_deferred
    assert len(looked_at) <= len(decision.fitting) + 1
    assert len(list(decision.deferrals)) == num_deferred
    assert len(looked_at) > 1_000 or decision.deferrals[1].needed == 1, "the needs are counted when somebody looks"


def watched(need, looked_at):
    return lambda request, kv: looked_at.add(request.request_id) or need(request, kv)


lengths = st.tuples(st.integers(1, 30), st.integers(1, 12))


@settings(deadline=None)
@given(st.lists(lengths, max_size=8), st.integers(1, 30), st.integers(0, 6), st.booleans())
def test_more_blocks_or_places_never_admit_less(requests, num_blocks, places, static):
    policy = "static_batch" if static else "guaranteed_no_evict"
    active = [waiting(i, prompt_len=prompt, max_tokens=new) for i, (prompt, new) in enumerate(requests)]
    decision = decide(active, pool(num_blocks), policy=policy, max_batch_size=places)
    admitted = decision.fitting
    assert admitted == tuple(active[: len(admitted)])
    assert len(admitted) <= places
    assert sum(blocks_to_completion(r, pool(num_blocks)) for r in admitted) <= num_blocks
    assert [d.request_id for d in decision.deferrals] == [r.request_id for r in active[len(admitted) :]]
    if decision.deferrals:
        assert decision.deferrals[0].needed > decision.deferrals[0].available
    more_blocks = decide(active, pool(num_blocks + 1), policy=policy, max_batch_size=places)
    more_places = decide(active, pool(num_blocks), policy=policy, max_batch_size=places + 1)
    assert len(more_blocks.fitting) >= len(admitted)
    assert len(more_places.fitting) >= len(admitted)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(lengths, min_size=1, max_size=8),
    st.sampled_from(["guaranteed_no_evict", "static_batch"]),
    st.integers(0, 6),
    st.sampled_from([(None, 33), ("fcfs", 6), ("fcfs", 11), ("fcfs", 24), ("equal_progress", 11)]),
    st.tuples(st.booleans(), st.integers(0, 3)),
)
def test_no_request_is_evicted_or_starved(requests, policy, gap, budget, reuse_and_drafts):
    (chunking, num_tokens), (reuse, draft_len) = budget, reuse_and_drafts
    world = World(
        num_blocks=12,
        max_batch_size=3,
        max_num_tokens=num_tokens,
        chunking=chunking,
        policy=policy,
        reuse=reuse,
        draft_len=draft_len,
    )
    guess = (TOKEN,) * 5 + (TOKEN + 1,) * 5
    pending = [
        waiting(i, prompt_len=prompt, max_tokens=new, draft_tokens=guess if i % 2 else ())
        for i, (prompt, new) in enumerate(requests)
    ]
    arrived: list[int] = []
    started: list[int] = []
    for step in range(2_000):
        if pending and step >= gap * len(arrived):
            arrived.append(pending[0].request_id)
            world.active.append(pending.pop(0))
        owners = world.kv.live_request_ids
        half_done = [r.request_id for r in world.active if r.is_context and r.request_id in owners]
        scheduled = world.step()  # prepare raises if a promise was broken
        assert scheduled.spans or not world.active, "live requests, and nothing ran"
        ran = {span.request_id for span in scheduled.spans}
        assert set(half_done[:1]) <= ran, "the oldest half-done prompt stood still"
        started.extend(i for i in sorted(ran) if i not in started)
        if not pending and not world.active:
            break
    assert sorted(started) == arrived == list(range(len(requests)))
    if chunking is None:
        assert started == arrived, "a prompt was overtaken"
    assert sorted(world.finished) == arrived
    assert world.kv.num_free_blocks == 12

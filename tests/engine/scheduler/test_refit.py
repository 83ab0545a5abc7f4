import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kv_cache.manager import KVCacheManager
from engine.reasons import DeferralReason
from engine.scheduled import BudgetUse, Deferral, ScheduledRequests
from engine.scheduler.capacity import CapacityScheduler
from engine.scheduler.deferrals import QueueDeferrals
from engine.scheduler.micro_batch import MicroBatchScheduler
from engine.scheduler.refit import refit
from tests.engine.live_requests import reasons, running, waiting

TOKENS, TRUNCATED = DeferralReason.TOKEN_BUDGET, DeferralReason.CHUNK_TRUNCATED
BLOCKED = Deferral(99, DeferralReason.NO_FREE_BLOCKS, 5, 1)


def schedule(batch, *, tokens=64, chunking="fcfs", unit=16, draft_len=0, **more):
    scheduler = MicroBatchScheduler(
        max_batch_size=8, max_num_tokens=tokens, chunking=chunking, chunk_unit=unit, draft_len=draft_len
    )
    return scheduler.schedule(batch, [BLOCKED], 3, **more)


def cached(tokens):
    """What the cache is expected to give, by request id."""
    return lambda request: tokens.get(request.request_id, 0)


def again(scheduled, *, tokens=64, chunking="fcfs", unit=16):
    return refit(scheduled, max_num_tokens=tokens, chunk_unit=unit, chunking=chunking)


def rows(scheduled):
    return [(span.request_id, span.start, span.num_rows, span.num_logit_rows) for span in scheduled.spans]


def test_a_decode_step_is_handed_through():
    scheduled = schedule([running(1), running(2)])
    assert again(scheduled) is scheduled


def test_a_step_that_did_not_change_is_handed_through():
    scheduled = schedule([running(1), waiting(2, prompt_len=100)])
    assert again(scheduled) is scheduled


def test_a_credit_turns_an_unfinished_chunk_into_a_last_one():
    request = waiting(1, prompt_len=100)
    scheduled = schedule([request, running(2)])
    assert rows(scheduled) == [(1, 0, 48, 0), (2, 20, 1, 1)]
    assert reasons(scheduled.deferrals)[1] is TRUNCATED
    request.context_current_position = 80
    refitted = again(scheduled)
    assert rows(refitted) == [(1, 80, 20, 1), (2, 20, 1, 1)]
    assert refitted.deferrals == (BLOCKED,)
    assert refitted.budget == BudgetUse(21, 64, 2, 8, 3)


def test_a_credit_that_ends_inside_a_unit_still_leaves_the_chunk_ending_on_one():
    request = waiting(1, prompt_len=200)
    scheduled = schedule([request])
    request.context_current_position = 70
    assert rows(again(scheduled)) == [(1, 70, 58, 0)]
    assert reasons(again(scheduled).deferrals)[1] is TRUNCATED


def test_a_prompt_that_now_ends_in_this_step_moves_behind_the_unfinished_chunks():
    first, second = waiting(1, prompt_len=64), waiting(2, prompt_len=64)
    spans = schedule([first], tokens=32).spans + schedule([second], tokens=32).spans
    scheduled = ScheduledRequests(spans, (), (), (), BudgetUse(64, 64, 2, 8))
    first.context_current_position = 48
    assert rows(again(scheduled)) == [(2, 0, 32, 0), (1, 48, 16, 1)]


def test_a_step_over_its_budget_shrinks_last_chunks_first_to_a_unit():
    scheduled = schedule([running(9), waiting(1, prompt_len=40), waiting(2, prompt_len=20)])
    refitted = again(scheduled, tokens=60)
    assert rows(refitted) == [(2, 0, 16, 0), (1, 0, 40, 1), (9, 20, 1, 1)]
    assert refitted.deferrals == (BLOCKED, Deferral(2, TRUNCATED, needed=20, available=16))
    assert refitted.budget == BudgetUse(57, 64, 3, 8, 3)


def test_a_prompt_that_a_credit_lets_end_here_gives_way_to_the_unfinished_chunks():
    first, second = waiting(1, prompt_len=64), waiting(2, prompt_len=64)
    spans = schedule([first], tokens=48).spans + schedule([second], tokens=32).spans
    scheduled = ScheduledRequests(spans, (), (), (), BudgetUse(80, 80, 2, 8))
    first.context_current_position = 30
    refitted = again(scheduled, tokens=60)
    assert rows(refitted) == [(1, 30, 18, 0), (2, 0, 32, 0)]
    assert refitted.deferrals == (Deferral(1, TRUNCATED, needed=34, available=18),)


def test_every_chunk_keeps_a_unit_of_progress_before_one_is_deferred():
    scheduled = schedule([waiting(1, prompt_len=40), waiting(2, prompt_len=20)])
    refitted = again(scheduled, tokens=32)
    assert rows(refitted) == [(1, 0, 16, 0), (2, 0, 16, 0)]
    refitted = again(scheduled, tokens=31)
    assert rows(refitted) == [(1, 0, 16, 0)]
    assert refitted.deferrals == (BLOCKED, Deferral(2, TOKENS, 20, 15), Deferral(1, TRUNCATED, 40, 16))


def test_without_chunking_the_youngest_prompt_waits():
    scheduled = schedule([running(9), waiting(1, prompt_len=40), waiting(2, prompt_len=20)], chunking=None)
    refitted = again(scheduled, tokens=60, chunking=None)
    assert rows(refitted) == [(1, 0, 40, 1), (9, 20, 1, 1)]
    assert refitted.deferrals == (BLOCKED, Deferral(2, TOKENS, needed=20, available=19))


def test_a_credit_that_came_as_expected_changes_nothing():
    request = waiting(1, prompt_len=100)
    scheduled = schedule([request], reusable=cached({1: 80}))
    assert rows(scheduled) == [(1, 80, 20, 1)]
    request.context_current_position = 80
    assert again(scheduled) is scheduled


def test_a_prompt_whose_credit_did_not_come_takes_what_the_step_has():
    scheduled = schedule([running(9), waiting(1, prompt_len=100)], reusable=cached({1: 80}))
    refitted = again(scheduled)
    assert rows(refitted) == [(1, 0, 48, 0), (9, 20, 1, 1)]
    assert refitted.deferrals == (BLOCKED, Deferral(1, TRUNCATED, needed=100, available=48))
    scheduled = schedule([waiting(1, prompt_len=200)], reusable=cached({1: 120}))
    assert rows(scheduled) == [(1, 120, 56, 0)]
    assert rows(again(scheduled)) == [(1, 0, 48, 0)]


def test_an_unfinished_chunk_whose_credit_did_not_come_keeps_a_unit():
    scheduled = schedule([running(9), waiting(1, prompt_len=200)], tokens=20, reusable=cached({1: 125}))
    assert rows(scheduled)[0] == (1, 125, 19, 0)
    request = scheduled.spans[0].request
    request.context_current_position = 5
    assert rows(again(scheduled, tokens=20))[0] == (1, 5, 11, 0)


def test_without_chunking_a_prompt_whose_credit_did_not_come_runs_whole_or_waits():
    batch = [waiting(1, prompt_len=40), waiting(2, prompt_len=30)]
    scheduled = schedule(batch, chunking=None, reusable=cached({1: 10, 2: 20}))
    assert rows(scheduled) == [(1, 10, 30, 1), (2, 20, 10, 1)]
    refitted = again(scheduled, chunking=None)
    assert rows(refitted) == [(1, 0, 40, 1)]
    assert refitted.deferrals == (BLOCKED, Deferral(2, TOKENS, needed=30, available=24))


def test_verify_rows_count_as_rows():
    batch = [running(9, draft_tokens=(3, 4, 5)), waiting(1, prompt_len=40), waiting(2, prompt_len=20)]
    scheduled = schedule(batch, draft_len=3)
    assert scheduled.num_tokens == 64
    assert again(scheduled) is scheduled
    refitted = again(scheduled, tokens=63)
    assert rows(refitted) == [(2, 0, 16, 0), (1, 0, 40, 1), (9, 20, 4, 4)]
    assert refitted.budget.num_tokens == refitted.num_tokens == 60


def test_who_waits_in_a_long_queue_is_not_looked_at():
    queue = tuple(waiting(i) for i in range(100))
    kv = KVCacheManager(num_blocks=4, tokens_per_block=4, max_seq_len=64)
    behind = CapacityScheduler().schedule((), queue, kv, max_batch_size=4).deferrals
    request = waiting(200, prompt_len=100)
    scheduler = MicroBatchScheduler(max_batch_size=8, max_num_tokens=64, chunking="fcfs", chunk_unit=16)
    scheduled = scheduler.schedule([request], behind)
    request.context_current_position = 80
    refitted = again(scheduled)
    assert isinstance(refitted.deferrals, QueueDeferrals)
    assert refitted.deferrals == behind, "cut short no more"


def test_generations_over_the_budget_are_a_bug_of_ours():
    scheduled = schedule([running(1), running(2), waiting(3, prompt_len=3)])
    with pytest.raises(AssertionError, match="2 generations exceed the budget of 1 rows"):
        again(scheduled, tokens=1)


@settings(deadline=None)
@given(
    prompts=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 59)), min_size=1, max_size=6),
    num_generations=st.integers(0, 3),
    unit=st.sampled_from([1, 4, 7]),
    tokens=st.integers(12, 60),
    cut=st.integers(0, 50),
    chunking=st.sampled_from([None, "fcfs", "equal_progress"]),
    expected=st.lists(st.integers(0, 59), min_size=6, max_size=6),
)
def test_whatever_was_found_in_the_cache_the_budget_holds(
    *, prompts, num_generations, unit, tokens, cut, chunking, expected
):
    batch = [waiting(i, prompt_len=length) for i, (length, _) in enumerate(prompts)]
    batch += [running(100 + i) for i in range(num_generations)]
    reusable = {
        i: min(credit, length - 1) for i, (credit, (length, _)) in enumerate(zip(expected, prompts, strict=False))
    }
    scheduled = schedule(batch, tokens=tokens, chunking=chunking, unit=unit, reusable=cached(reusable))
    for request, (length, credit) in zip(batch, prompts, strict=False):
        request.context_current_position = min(credit, length - 1)
    budget = max(tokens - cut, num_generations + unit)
    refitted = again(scheduled, tokens=budget, chunking=chunking, unit=unit)
    assert refitted.num_tokens == refitted.budget.num_tokens <= budget
    assert refitted.num_requests == refitted.budget.num_requests
    assert refitted.generation_requests == scheduled.generation_requests
    for span in refitted.context_requests:
        assert span.start == span.request.context_current_position
        assert span.num_rows >= 1
        assert span.end == span.request.py_prompt_len if span.num_logit_rows else span.end % unit == 0
        if chunking is None and span.request.context_remaining_length <= budget:
            assert span.num_logit_rows
    before = {span.request_id for span in scheduled.context_requests}
    after = {span.request_id for span in refitted.context_requests}
    why = reasons(refitted.deferrals)
    assert after <= before
    assert all(why[i] is TOKENS for i in before - after)
    assert len(why) == len(refitted.deferrals), "a request has two reasons"
    if chunking and before:
        assert after, "nobody moved although a unit was free"
    assert again(refitted, tokens=budget, chunking=chunking, unit=unit) is refitted

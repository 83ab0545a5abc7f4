import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import RequestState
from engine.reasons import DeferralReason
from engine.scheduled import BudgetUse, Deferral, RowKind
from engine.scheduler.capacity import CapacityScheduler
from engine.scheduler.deferrals import QueueDeferrals
from engine.scheduler.micro_batch import MicroBatchScheduler, in_row_order
from tests.engine.live_requests import reasons, running, waiting

BEHIND, REQUESTS = DeferralReason.BEHIND_BLOCKED_REQUEST, DeferralReason.REQUEST_BUDGET
TOKENS, TRUNCATED = DeferralReason.TOKEN_BUDGET, DeferralReason.CHUNK_TRUNCATED


def schedule(fitting, *, requests=8, tokens=64, chunking=None, unit=16, draft_len=0, **more):
    scheduler = MicroBatchScheduler(
        max_batch_size=requests, max_num_tokens=tokens, chunking=chunking, chunk_unit=unit, draft_len=draft_len
    )
    return scheduler.schedule(fitting, **more)


def rows(scheduled):
    return [(span.request_id, span.start, span.num_rows) for span in scheduled.spans]


def test_generations_take_one_row_each_and_contexts_their_prompt():
    scheduled = schedule([running(1), waiting(2, prompt_len=5), running(3)])
    assert rows(scheduled) == [(2, 0, 5), (1, 20, 1), (3, 20, 1)]
    assert [span.num_logit_rows for span in scheduled.spans] == [1, 1, 1]
    assert [span.kind for span in scheduled.spans] == [RowKind.CONTEXT, RowKind.GENERATION, RowKind.GENERATION]
    assert scheduled.deferrals == ()


def test_the_record_says_what_the_step_spends():
    scheduler = MicroBatchScheduler(max_batch_size=4, max_num_tokens=32, chunking=None, chunk_unit=16)
    before, paused = Deferral(9, DeferralReason.NO_FREE_BLOCKS, 3, 2), waiting(5)
    scheduled = scheduler.schedule([running(1), waiting(2)], [before], 17, paused=[paused])
    assert scheduled.budget == BudgetUse(
        num_tokens=21, max_num_tokens=32, num_requests=2, max_batch_size=4, num_free_blocks=17
    )
    assert scheduled.deferrals == (before,)
    assert scheduled.paused_requests == (paused,)


def test_an_empty_step_is_a_complete_record():
    scheduled = schedule([])
    assert (scheduled.spans, scheduled.deferrals, scheduled.budget.num_tokens) == ((), (), 0)


def test_generations_without_a_sample_on_the_device_come_first_and_keep_their_order():
    batch = [running(1), running(2, on_device=False), running(3), running(4, on_device=False)]
    assert [span.request_id for span in schedule(batch).generation_requests] == [2, 4, 1, 3]


def test_unfinished_chunks_come_before_last_chunks():
    batch = [waiting(1, prompt_len=4), waiting(2, prompt_len=90, position=32), waiting(3, prompt_len=6)]
    scheduled = schedule(batch, tokens=40, chunking="fcfs")
    assert rows(scheduled) == [(2, 32, 32), (1, 0, 4)]
    assert [span.num_logit_rows for span in scheduled.spans] == [0, 1]
    assert scheduled.deferrals == (Deferral(2, TRUNCATED, 58, 36), Deferral(3, TOKENS, 6, 4))


def test_without_chunking_a_prompt_runs_whole_or_waits_and_nobody_overtakes():
    batch = [waiting(1, prompt_len=40), waiting(2, prompt_len=30), waiting(3, prompt_len=2)]
    scheduled = schedule(batch)
    assert rows(scheduled) == [(1, 0, 40)]
    assert scheduled.deferrals == (Deferral(2, TOKENS, needed=30, available=24), Deferral(3, BEHIND, 2, 24))


def test_running_work_is_paid_for_before_prompts():
    scheduled = schedule([waiting(1, prompt_len=63), running(2), running(3)])
    assert rows(scheduled) == [(2, 20, 1), (3, 20, 1)]
    assert scheduled.deferrals == (Deferral(1, TOKENS, 63, 62),)


def test_what_the_rounding_leaves_over_may_finish_a_shorter_prompt():
    scheduled = schedule([waiting(1, prompt_len=100), waiting(2, prompt_len=4)], tokens=20, chunking="fcfs")
    assert rows(scheduled) == [(1, 0, 16), (2, 0, 4)]
    assert scheduled.deferrals == (Deferral(1, TRUNCATED, needed=100, available=20),)


def test_a_chunk_of_no_rows_is_a_deferral():
    scheduled = schedule([waiting(1, prompt_len=16), waiting(2, prompt_len=40)], tokens=30, chunking="fcfs")
    assert rows(scheduled) == [(1, 0, 16)]
    assert scheduled.deferrals == (Deferral(2, TOKENS, needed=40, available=14),)


def test_equal_progress_shares_the_budget_and_says_how_far_each_got():
    batch = [running(9), waiting(1, prompt_len=100), waiting(2, prompt_len=10), waiting(3, prompt_len=40)]
    scheduled = schedule(batch, chunking="equal_progress")
    assert rows(scheduled) == [(1, 0, 32), (3, 0, 16), (2, 0, 10), (9, 20, 1)]
    assert scheduled.deferrals == (Deferral(1, TRUNCATED, 100, 32), Deferral(3, TRUNCATED, 40, 16))
    nothing_left = schedule(batch, chunking="equal_progress", tokens=30)
    assert rows(nothing_left) == [(1, 0, 16), (2, 0, 10), (9, 20, 1)]
    assert nothing_left.deferrals == (Deferral(1, TRUNCATED, 100, 16), Deferral(3, TOKENS, 40, 3))


def test_a_prompt_that_outgrew_the_budget_by_a_pause_is_cut_even_without_chunking():
    paused = running(1, prompt_len=60, generated=9)
    paused.pause()
    scheduled = schedule([paused, waiting(2, prompt_len=2)])
    assert rows(scheduled) == [(1, 0, 64)]
    assert scheduled.deferrals == (Deferral(1, TRUNCATED, 69, 64), Deferral(2, BEHIND, 2, 0))
    paused.context_current_position = 64
    assert rows(schedule([paused, waiting(2, prompt_len=2)])) == [(1, 64, 5), (2, 0, 2)]


def test_a_chunk_begins_behind_what_the_cache_is_going_to_give():
    batch = [waiting(1, prompt_len=100), waiting(2, prompt_len=90), waiting(3, prompt_len=90, position=48)]
    scheduled = schedule(batch, chunking="fcfs", reusable=lambda request: {1: 80}.get(request.request_id, 0))
    assert rows(scheduled) == [(2, 0, 32), (1, 80, 20)]
    assert [span.num_logit_rows for span in scheduled.spans] == [0, 1]
    whole = schedule([batch[0], waiting(4, prompt_len=50)], reusable=lambda request: {1: 80}.get(request.request_id, 0))
    assert rows(whole) == [(1, 80, 20)]
    assert whole.deferrals == (Deferral(4, TOKENS, 50, 44),)


def test_the_cache_is_asked_only_about_newcomers_that_can_get_rows():
    asked = []
    batch = [waiting(1, prompt_len=100, position=48), *[waiting(i, prompt_len=20) for i in range(2, 9)]]
    schedule(batch, chunking="fcfs", tokens=100, reusable=lambda request: asked.append(request.request_id) or 4)
    assert asked == [2, 3, 4]


def test_the_deferrals_of_a_long_queue_are_handed_on_unmade():
    queue = tuple(waiting(i) for i in range(100))
    kv = KVCacheManager(num_blocks=4, tokens_per_block=4, max_seq_len=64)
    before = CapacityScheduler().schedule((), queue, kv, max_batch_size=4).deferrals
    assert schedule([], deferrals=before).deferrals is before
    more = schedule([running(201), waiting(200, prompt_len=64)], deferrals=before).deferrals
    assert isinstance(more, QueueDeferrals)
    assert more == (*before, Deferral(200, TOKENS, 64, 63))


def test_a_full_batch_defers_the_rest_by_its_request_budget():
    scheduled = schedule([running(1), waiting(2, prompt_len=4), waiting(3, prompt_len=4)], requests=2)
    assert [span.request_id for span in scheduled.spans] == [2, 1]
    assert scheduled.deferrals == (Deferral(3, REQUESTS, needed=1, available=0),)


def test_generations_beyond_a_budget_wait_in_arrival_order():
    batch = [running(i, on_device=i != 3) for i in (1, 2, 3)]
    by_requests = schedule(batch, requests=2)
    assert [span.request_id for span in by_requests.spans] == [1, 2]
    assert by_requests.deferrals == (Deferral(3, REQUESTS, 1, 0),)
    assert reasons(schedule(batch, requests=3, tokens=2).deferrals) == {3: TOKENS}


def test_a_request_known_to_finish_is_not_run_again():
    ending = running(1)
    ending.move_to(RequestState.GENERATION_TO_COMPLETE)
    assert schedule([ending]).spans == ()


def test_row_order_keeps_the_order_inside_each_kind():
    batch = [waiting(i, prompt_len=length) for i, length in ((1, 4), (2, 40), (3, 4), (4, 40))]
    spans = schedule(batch, tokens=1000).context_requests
    cut = [
        span if span.num_rows == 4 else schedule([span.request], tokens=16, chunking="fcfs").spans[0] for span in spans
    ]
    assert [span.request_id for span in in_row_order(cut)] == [2, 4, 1, 3]


def test_every_generation_runs_one_row_and_k_drafts_when_somebody_has_drafts():
    batch = [running(1), running(2, draft_tokens=(5, 6, 7, 8, 9, 10)), running(3, on_device=False)]
    scheduled = schedule(batch, draft_len=3)
    assert scheduled.draft_len == 3
    assert [(span.request_id, span.kind, span.num_rows, span.num_logit_rows) for span in scheduled.spans] == [
        (3, RowKind.EXTEND, 4, 4),
        (1, RowKind.EXTEND, 4, 4),
        (2, RowKind.EXTEND, 4, 4),
    ]
    assert [span.draft_tokens for span in scheduled.spans] == [(0, 0, 0), (0, 0, 0), (6, 7, 8)]
    assert scheduled.budget.num_tokens == scheduled.num_tokens == 12


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": [running(1), running(2)]},
        {"tokens": 7},  # two generations, four rows each
        {"draft_len": 0},
        {"can_draft": False},
        {"requests": 1},  # a generation waits: it would wait longer for wider rows
    ],
)
def test_a_step_runs_without_drafts_where_they_do_not_fit(changes):
    options = {"batch": [running(1), running(2, draft_tokens=(5, 6, 7))], "draft_len": 3, **changes}
    scheduled = schedule(options.pop("batch"), **options)
    assert scheduled.draft_len == 0
    assert all(span.kind is RowKind.GENERATION for span in scheduled.spans)
    assert not scheduled.deferrals or options.get("requests") == 1


@pytest.mark.parametrize(
    ("prompt_len", "tokens", "draft_len"), [(40, 20, 3), (40, 19, 0), (40, 16, 3), (4, 8, 3), (4, 7, 0)]
)
def test_drafts_never_take_the_rows_of_the_oldest_prompt(prompt_len, tokens, draft_len):
    batch = [running(1, draft_tokens=(5, 6, 7)), waiting(2, prompt_len=prompt_len)]
    scheduled = schedule(batch, tokens=tokens, chunking="fcfs", draft_len=3)
    assert scheduled.draft_len == draft_len
    assert len(scheduled.context_requests) == (tokens > 16 or prompt_len < 16)


generation = st.builds(
    dict, kind=st.just("generation"), on_device=st.booleans(), draft_tokens=st.sampled_from([(), (), (4, 5, 6)])
)
context = st.builds(dict, kind=st.just("context"), prompt_len=st.integers(1, 40), position=st.integers(0, 39))


@st.composite
def batches(draw):
    batch = []
    for i, item in enumerate(draw(st.lists(generation | context, max_size=8))):
        if item["kind"] == "generation":
            batch.append(running(i, on_device=item["on_device"], draft_tokens=item["draft_tokens"]))
        else:
            position = min(item["position"], item["prompt_len"] - 1)
            batch.append(waiting(i, prompt_len=item["prompt_len"], position=position))
    return batch


@settings(deadline=None)
@given(
    batches(),
    st.integers(1, 8),
    st.integers(1, 60),
    st.sampled_from([None, "fcfs", "equal_progress"]),
    st.sampled_from([1, 4, 7]),
)
def test_budgets_hold_chunks_end_on_units_and_everyone_is_accounted_for(batch, requests, tokens, chunking, unit):
    scheduled = schedule(batch, requests=requests, tokens=tokens, chunking=chunking, unit=unit, draft_len=2)
    assert {span.num_rows for span in scheduled.generation_requests} <= {1 + scheduled.draft_len}
    assert scheduled.num_tokens == scheduled.budget.num_tokens <= tokens
    assert scheduled.num_requests == scheduled.budget.num_requests <= requests
    for span in scheduled.context_requests:
        assert span.num_rows >= 1
        assert span.start == span.request.context_current_position
        assert span.end <= span.request.py_prompt_len
        assert (span.num_logit_rows == 1) == (span.end == span.request.py_prompt_len)
        if not span.num_logit_rows:
            assert chunking is not None or span.request.context_remaining_length > tokens
            assert span.end % unit == 0 or unit > tokens
    ran = {span.request_id for span in scheduled.spans}
    why = reasons(scheduled.deferrals)
    cut = {span.request_id for span in scheduled.context_requests if not span.num_logit_rows}
    assert {i for i, reason in why.items() if reason is TRUNCATED} == cut
    assert ran | set(why) == {request.request_id for request in batch}
    assert ran & set(why) == cut
    assert all(d.needed > d.available for d in scheduled.deferrals if d.reason is not BEHIND)
    flags = [span.num_logit_rows for span in scheduled.context_requests]
    assert flags == sorted(flags)
    on_device = [span.request.py_batch_idx is not None for span in scheduled.generation_requests]
    assert on_device == sorted(on_device)


@settings(deadline=None)
@given(batches(), st.integers(1, 60), st.sampled_from([None, "fcfs"]), st.sampled_from([1, 4, 7]))
def test_more_tokens_never_run_less_and_never_harm_an_older_prompt(batch, tokens, chunking, unit):
    assume(chunking is not None or all(request.context_remaining_length <= tokens for request in batch))
    less = schedule(batch, tokens=tokens, chunking=chunking, unit=unit)
    more = schedule(batch, tokens=tokens + 1, chunking=chunking, unit=unit)
    assert more.num_tokens >= less.num_tokens
    assert len(more.generation_requests) >= len(less.generation_requests)
    if len(less.generation_requests) == len(more.generation_requests):
        assert in_arrival_order(more, batch) >= in_arrival_order(less, batch)


def in_arrival_order(scheduled, batch):
    granted = {span.request_id: span.num_rows for span in scheduled.context_requests}
    return [granted.get(request.request_id, 0) for request in batch]


@settings(deadline=None)
@given(batches(), st.integers(1, 8), st.sampled_from(["fcfs", "equal_progress"]), st.sampled_from([1, 4, 7]))
def test_the_oldest_prompt_always_gets_a_chunk_when_the_budget_is_as_the_config_demands(
    batch, requests, chunking, unit
):
    batch = batch[:requests]
    tokens = requests + unit - 1
    scheduled = schedule(batch, requests=requests, tokens=tokens, chunking=chunking, unit=unit, draft_len=2)
    contexts = [request.request_id for request in batch if request.is_context]
    if contexts:
        assert contexts[0] in {span.request_id for span in scheduled.context_requests}

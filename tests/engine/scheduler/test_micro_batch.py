import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.llm_request import RequestState
from engine.reasons import DeferralReason
from engine.scheduled import BudgetUse, Deferral, RowKind
from engine.scheduler.micro_batch import MicroBatchScheduler, chunk_rows, in_row_order
from tests.engine.live_requests import reasons, running, waiting

BEHIND, REQUESTS = DeferralReason.BEHIND_BLOCKED_REQUEST, DeferralReason.REQUEST_BUDGET
TOKENS, TRUNCATED = DeferralReason.TOKEN_BUDGET, DeferralReason.CHUNK_TRUNCATED


def schedule(fitting, *, requests=8, tokens=64, chunking=None, unit=16, deferrals=()):
    scheduler = MicroBatchScheduler(max_batch_size=requests, max_num_tokens=tokens, chunking=chunking, chunk_unit=unit)
    return scheduler.schedule(fitting, deferrals)


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


@pytest.mark.parametrize(
    ("start", "remaining", "left", "expected"),
    [
        (0, 20, 20, 20),  # a last chunk may end anywhere
        (0, 20, 19, 16),
        (0, 100, 63, 48),
        (0, 100, 15, 0),
        (13, 100, 3, 3),  # the end counts, not the size: position 16
        (13, 100, 2, 0),
        (13, 100, 34, 19),  # position 32
        (16, 4, 0, 0),
    ],
)
def test_a_truncated_chunk_ends_on_a_unit(start, remaining, left, expected):
    assert chunk_rows(start, remaining, left, 16) == expected


def test_what_the_rounding_leaves_over_may_finish_a_shorter_prompt():
    scheduled = schedule([waiting(1, prompt_len=100), waiting(2, prompt_len=4)], tokens=20, chunking="fcfs")
    assert rows(scheduled) == [(1, 0, 16), (2, 0, 4)]
    assert scheduled.deferrals == (Deferral(1, TRUNCATED, needed=100, available=20),)


def test_a_chunk_of_no_rows_is_a_deferral():
    scheduled = schedule([waiting(1, prompt_len=16), waiting(2, prompt_len=40)], tokens=30, chunking="fcfs")
    assert rows(scheduled) == [(1, 0, 16)]
    assert scheduled.deferrals == (Deferral(2, TOKENS, needed=40, available=14),)


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


generation = st.builds(dict, kind=st.just("generation"), on_device=st.booleans())
context = st.builds(dict, kind=st.just("context"), prompt_len=st.integers(1, 40), position=st.integers(0, 39))


@st.composite
def batches(draw):
    batch = []
    for i, item in enumerate(draw(st.lists(generation | context, max_size=8))):
        if item["kind"] == "generation":
            batch.append(running(i, on_device=item["on_device"]))
        else:
            position = min(item["position"], item["prompt_len"] - 1)
            batch.append(waiting(i, prompt_len=item["prompt_len"], position=position))
    return batch


@settings(deadline=None)
@given(batches(), st.integers(1, 8), st.integers(1, 60), st.sampled_from([None, "fcfs"]), st.sampled_from([1, 4, 7]))
def test_budgets_hold_chunks_end_on_units_and_everyone_is_accounted_for(batch, requests, tokens, chunking, unit):
    scheduled = schedule(batch, requests=requests, tokens=tokens, chunking=chunking, unit=unit)
    assert scheduled.num_tokens == scheduled.budget.num_tokens <= tokens
    assert scheduled.num_requests == scheduled.budget.num_requests <= requests
    for span in scheduled.context_requests:
        assert span.num_rows >= 1
        assert span.start == span.request.context_current_position
        assert span.end <= span.request.py_prompt_len
        assert (span.num_logit_rows == 1) == (span.end == span.request.py_prompt_len)
        if not span.num_logit_rows:
            assert chunking is not None
            assert span.end % unit == 0
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
@given(batches(), st.integers(1, 8), st.sampled_from([1, 4, 7]))
def test_the_oldest_prompt_always_gets_a_chunk_when_the_budget_is_as_the_config_demands(batch, requests, unit):
    batch = batch[:requests]
    scheduled = schedule(batch, requests=requests, tokens=requests + unit - 1, chunking="fcfs", unit=unit)
    contexts = [request.request_id for request in batch if request.is_context]
    if contexts:
        assert contexts[0] in {span.request_id for span in scheduled.context_requests}

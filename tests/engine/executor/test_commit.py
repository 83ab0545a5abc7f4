"""Forward at the launch, final when read, and back when undone."""

import numpy as np

from engine.executor.commit import (
    CommitLog,
    OpenStep,
    advance,
    sampled_tokens,
    take_row,
    take_samples,
    take_unwatched,
    undo,
)
from engine.executor.decode_rows import look_at
from engine.executor.records import PendingSamples
from engine.llm_request import RequestState
from engine.resources import Reservation
from engine.scheduled import BudgetUse, ScheduledRequests, context_span, generation_span, verify_span
from tests.engine.executor.test_live import live
from tests.engine.live_requests import running, waiting


class Samples(PendingSamples):
    def __init__(self, tokens, accepted=None):
        self.tokens = np.array(tokens, dtype=np.int32)
        self.accepted = np.zeros(self.tokens.shape[1], dtype=np.int32) if accepted is None else np.array(accepted)

    def read(self):
        return self.tokens

    def num_accepted(self):
        return self.accepted

    def logprobs(self):
        return ()


def step_of(contexts=(), generations=(), *, draft_len=0, number=0, rows=None):
    scheduled = ScheduledRequests(
        tuple(contexts), tuple(generations), (), (), BudgetUse(0, 9, 0, 9), draft_len=draft_len
    )
    return OpenStep(number, scheduled, scheduled, rows)


def slotted(request, slot):
    request.py_seq_slot = slot
    return request


def test_a_launch_moves_cursors_and_expects_tokens():
    first, last, going = slotted(waiting(0), 0), slotted(waiting(1), 1), slotted(running(2, on_device=False), 2)
    step = step_of([context_span(first, 4), context_span(last, 20)], [generation_span(going)])
    advance(step)
    assert step.is_launched
    assert (first.context_current_position, first.num_in_flight, first.state) == (4, 0, RequestState.CONTEXT_INIT)
    assert (last.context_current_position, last.num_in_flight) == (20, 1)
    assert (last.state, last.py_batch_idx) == (RequestState.GENERATION_IN_PROGRESS, 1)
    assert (going.num_in_flight, going.py_batch_idx) == (1, 2)
    assert generation_span(going).start == 21, "one behind the token that is on its way"


def test_a_request_with_all_its_tokens_on_the_way_is_known_to_end():
    request = slotted(running(0, generated=2, max_tokens=3), 0)
    advance(step_of((), [generation_span(request)]))
    assert request.state is RequestState.GENERATION_TO_COMPLETE


def test_samples_reach_their_requests_and_the_wasted_ones_nobody():
    one, gone = slotted(running(0), 0), slotted(running(1), 1)
    step = step_of((), [generation_span(one), generation_span(gone)])
    advance(step)
    step.samples = Samples([[50, 60]])
    lives = {0: live(one)}
    assert sampled_tokens(step, step.samples.tokens, lives).token_ids == ((0, 50),)
    log = take_samples(step, step.samples.tokens, lives)
    assert (one.generated[-1], one.num_in_flight, log.ended) == (50, 0, [])
    assert gone.generated == [7]


def test_an_id_that_was_given_to_another_request_takes_no_token():
    old, new = slotted(running(0), 0), slotted(running(0), 0)
    step = step_of((), [generation_span(old)])
    advance(step)
    step.samples = Samples([[50]])
    take_samples(step, step.samples.tokens, {0: live(new)})
    assert new.generated == [7]


def test_a_verify_row_gives_the_accepted_drafts_and_one_more():
    request = slotted(running(0, draft_tokens=(7, 8, 9, 10)), 0)
    step = step_of((), [verify_span(request, 3)], draft_len=3)
    advance(step)
    assert (request.num_in_flight, request.py_batch_idx) == (4, 0), "the device knows which sample is the newest"
    step.samples = Samples([[8], [9], [44], [45]], accepted=[2])
    lives = {0: live(request)}
    seen = sampled_tokens(step, step.samples.tokens, lives)
    assert (seen.token_ids, seen.num_accepted) == (((0, 8), (0, 9), (0, 44)), ((0, 2),))
    take_samples(step, step.samples.tokens, lives)
    assert request.generated == [7, 8, 9, 44]
    assert (request.num_in_flight, request.py_batch_idx) == (0, None), "its newest sample is not the first of its slot"


def test_a_verify_row_behind_an_unread_one_expects_two_tokens_for_certain_and_eight_at_best():
    request = slotted(running(0, draft_tokens=tuple(range(7, 30)), max_tokens=5), 0)
    first = step_of((), [verify_span(request, 3)], draft_len=3)
    advance(first)
    second = step_of((), [verify_span(request, 3)], draft_len=3)
    assert second.scheduled.spans[0].start == first.scheduled.spans[0].start + 4
    advance(second)
    assert (request.num_in_flight, request.state) == (8, RequestState.GENERATION_IN_PROGRESS)
    first.samples = Samples([[8], [9], [10], [45]], accepted=[2])
    take_samples(first, first.samples.tokens, {0: live(request)})
    assert request.generated == [7, 8, 9, 10]
    assert (request.num_in_flight, request.py_batch_idx) == (4, 0)
    assert request.state is RequestState.GENERATION_TO_COMPLETE, "the token on its way is its last"


def test_a_prompt_beside_drafts_takes_one_token_whatever_its_slot_accepted_before():
    resumed = slotted(waiting(0, position=16), 0)
    resumed.generated.append(5)
    resumed.py_prompt_len += 1
    other = slotted(running(1, draft_tokens=(7, 8, 9)), 1)
    step = step_of([context_span(resumed, 5)], [verify_span(other, 2)], draft_len=2)
    advance(step)
    step.samples = Samples([[3, 8], [4, 9], [6, 2]], accepted=[2, 1])
    lives = {0: live(resumed), 1: live(other)}
    assert sampled_tokens(step, step.samples.tokens, lives).num_accepted == ((1, 1),)
    take_samples(step, step.samples.tokens, lives)
    assert (resumed.generated, other.generated) == ([5, 3], [7, 8, 9])


def test_a_run_ends_at_the_token_that_ends_the_request():
    request = running(0, generated=0, max_tokens=50)
    one, log = live(request, stop_token_ids=(3,)), CommitLog()
    take_row(one, [5, 3, 6], log)
    assert request.generated == [5, 3]
    assert [(ended is one, reason) for ended, reason in log.ended] == [(True, "stop")]


def test_an_undone_step_takes_host_tokens_next_time_and_forgets_what_it_found_cached():
    fresh, going, gone = slotted(waiting(0), 0), slotted(running(1), 1), slotted(running(2), 2)
    step = step_of([context_span(fresh, 4)], [generation_span(going), generation_span(gone)])
    fresh.context_current_position = 16
    step.reservation = Reservation(credits=((0, 16),), slots=((0, 0),), new_blocks=((1, (5,)), (2, (6,))))
    granted = undo(step, {0: live(fresh), 1: live(going)})
    assert (fresh.context_current_position, going.py_batch_idx) == (0, None)
    assert granted.new_blocks == ((1, (5,)),), "what a finished request held went back when it ended"


def test_unwatched_samples_reach_contexts_and_rows_and_only_some_are_looked_at():
    prompt, cut, going, last = (
        slotted(waiting(0), 0),
        slotted(waiting(1), 1),
        slotted(running(2), 2),
        slotted(running(3, generated=49, max_tokens=50), 3),
    )
    lives = {request.request_id: live(request) for request in (prompt, cut, going, last)}
    step = step_of(
        [context_span(cut, 4), context_span(prompt, 20)],
        [generation_span(going), generation_span(last)],
        rows=look_at((going, last), lives, frozenset()),
    )
    advance(step)
    step.samples = Samples([[50, 51, 52, 53]])
    table = np.zeros(99, dtype=bool)
    log = take_unwatched(step, step.samples.tokens, lives, table)
    assert [(one.request, reason) for one, reason in log.ended] == [(last, "length")]
    assert [request.generated[-1:] for request in (prompt, cut, going, last)] == [[50], [], [52], [53]]
    assert [request.num_in_flight for request in (prompt, cut, going, last)] == [0] * 4


def test_a_row_whose_request_ended_in_the_step_before_is_nobodys():
    one, gone = slotted(running(0), 0), slotted(running(1), 1)
    lives = {0: live(one), 1: live(gone)}
    rows = look_at((one, gone), lives, frozenset())
    step = step_of((), [generation_span(one), generation_span(gone)], rows=rows)
    advance(step)
    step.rows = step.rows.without(gone)
    step.samples = Samples([[50, 60]])
    log = take_unwatched(step, step.samples.tokens, {0: lives[0]}, np.ones(99, dtype=bool))
    assert (one.generated, gone.generated, log.ended) == ([7, 50], [7], [])

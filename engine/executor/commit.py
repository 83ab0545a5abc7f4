"""What a step does to its requests: forward when it is launched, final when its samples were read, back when undone.

``advance`` runs when the device has got the step: cursors move, and each request expects one token more, or with drafts
as many as it can get at best. ``take_row`` runs when the tokens are there. ``undo`` is for a step that was never
launched.

Does not: talk to the device or to managers (``py_executor.py`` does). Torch-free.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from engine.executor.decode_rows import DecodeRows
from engine.executor.live import LiveRequest, LogProbs
from engine.executor.records import PendingSamples, SampledTokens
from engine.llm_request import LlmRequest, RequestState
from engine.resources import Reservation
from engine.scheduled import ScheduledRequests


@dataclasses.dataclass(slots=True, eq=False)
class OpenStep:
    """A step between its reservation and its commit.

    to_reserve: the spans that may need blocks. rows: its plain decode rows, of requests that have not ended since.
    is_repeated: the schedulers were not asked. reservation, samples: None until the step got there.
    """

    number: int
    scheduled: ScheduledRequests
    to_reserve: ScheduledRequests
    rows: DecodeRows | None = None
    is_repeated: bool = False
    reservation: Reservation | None = None
    samples: PendingSamples | None = None
    is_launched: bool = False
    is_taken_back: bool = False  # by the managers themselves


@dataclasses.dataclass(slots=True)
class CommitLog:
    """What a commit did. ended: requests that end now, and why. new_text: (request id, text that became showable)."""

    ended: list[tuple[LiveRequest, str]] = dataclasses.field(default_factory=list[tuple[LiveRequest, str]])
    new_text: list[tuple[int, str]] = dataclasses.field(default_factory=list[tuple[int, str]])


def advance(step: OpenStep) -> None:
    """Move the requests of a launched step to where they will stand once it has run."""
    for span in step.scheduled.context_requests:
        span.request.context_current_position = span.end
        if span.num_logit_rows:
            _expect_token(span.request)
    if step.rows is not None:
        step.rows.expect_tokens()
    else:
        for request in step.scheduled.generating:
            _expect_token(request, step.scheduled.draft_len)
    step.is_launched = True


def _expect_token(request: LlmRequest, draft_len: int = 0) -> None:
    num_certain = 1 + (request.num_in_flight > 0)  # each step brings one token, whatever becomes of its drafts
    request.num_in_flight += 1 + draft_len
    request.py_batch_idx = request.py_seq_slot
    is_last = len(request.generated) + num_certain >= request.max_new_tokens
    state = RequestState.GENERATION_TO_COMPLETE if is_last else RequestState.GENERATION_IN_PROGRESS
    if request.state is not state:
        request.move_to(state)


def undo(step: OpenStep, live: Mapping[int, LiveRequest]) -> Reservation:
    """Put the requests of a step that was not launched back; return what its managers have to take back.

    Its samples may lie in the slots already, so its rows take host tokens next time.
    """
    for span in step.scheduled.spans:
        span.request.py_batch_idx = None
    reservation = step.reservation or Reservation()
    for request_id, _tokens in reservation.credits:
        live[request_id].request.context_current_position = 0
    blocks = tuple([(request_id, added) for request_id, added in reservation.new_blocks if request_id in live])
    return dataclasses.replace(reservation, new_blocks=blocks)


def take_samples(step: OpenStep, tokens: np.ndarray, live: Mapping[int, LiveRequest]) -> CommitLog:
    """Give every request of the step its tokens, and look at each. Shapes: tokens [1 + K, A], by slot."""
    assert step.samples is not None
    log, logprobs, accepted = CommitLog(), logprobs_by_request(step), step.samples.num_accepted()
    for request, draft_len in sampled_rows(step):
        owner = live.get(request.request_id)
        if owner is not None and owner.request is request:  # else it ended in the step before, and this is its waste
            request.num_in_flight -= 1 + draft_len
            run = sampled_run(request, draft_len, tokens, accepted)
            take_row(owner, run, log, logprobs.get(request.request_id, ()))
            if draft_len:
                _settle_drafts(request)
    return log


def take_unwatched(
    step: OpenStep, tokens: np.ndarray, live: Mapping[int, LiveRequest], eos_table: np.ndarray
) -> CommitLog:
    """Give every request one token, with a closer look only where it may matter: nobody asks for its text.

    For steps without drafts. Shapes: tokens [1, A], by slot; eos_table [V] bool.
    """
    by_slot, looked_at = tokens[0], list[tuple[LiveRequest, int]]()
    for span in step.scheduled.context_requests:
        owner = live.get(span.request_id) if span.num_logit_rows else None
        if owner is not None and owner.request is span.request:
            span.request.num_in_flight -= 1
            token = int(by_slot[span.request.py_seq_slot])
            if owner.takes_blindly(token):
                span.request.generated.append(token)
            else:
                looked_at.append((owner, token))
    if step.rows is not None:
        requests, row_tokens = step.rows.requests, by_slot[step.rows.slots]
        for row in step.rows.take(row_tokens, eos_table):
            looked_at.append((live[requests[row].request_id], int(row_tokens[row])))
    log, logprobs = CommitLog(), logprobs_by_request(step) if looked_at else {}
    for owner, token in looked_at:
        take_row(owner, [token], log, logprobs.get(owner.request.request_id, ()))
    return log


def logprobs_by_request(step: OpenStep) -> dict[int, list[LogProbs]]:
    """Read the log-probabilities of a step, once for all its requests: each read asks the device."""
    assert step.samples is not None
    found: dict[int, list[LogProbs]] = {}
    for request_id, values in step.samples.logprobs():
        found.setdefault(request_id, []).append(values)
    return found


def _settle_drafts(request: LlmRequest) -> None:
    """Say what is known of a request now that its drafts were counted."""
    if not request.num_in_flight:  # its newest sample need not be the first of its slot: the host hands it on
        request.py_batch_idx = None
    elif request.num_generated + 1 >= request.max_new_tokens and request.state is RequestState.GENERATION_IN_PROGRESS:
        request.move_to(RequestState.GENERATION_TO_COMPLETE)


def sampled_rows(step: OpenStep) -> list[tuple[LlmRequest, int]]:
    """List the requests that get samples, in the order of their logit rows, with the drafts that each verified."""
    scheduled = step.scheduled
    generating = scheduled.generating
    num_contexts = len(scheduled.sampled_requests) - len(generating)
    contexts = [(request, 0) for request in scheduled.sampled_requests[:num_contexts]]
    return [*contexts, *[(request, scheduled.draft_len) for request in generating]]


def sampled_run(request: LlmRequest, draft_len: int, tokens: np.ndarray, accepted: np.ndarray) -> list[int]:
    """Return the new tokens of a request: one, and one more for each draft that was accepted."""
    slot = request.py_seq_slot
    assert slot is not None, f"request {request.request_id} has no slot"
    num_tokens = 1 + int(accepted[slot]) if draft_len else 1
    run: list[int] = tokens[:num_tokens, slot].tolist()
    return run


def take_row(live: LiveRequest, run: Sequence[int], log: CommitLog, logprobs: Sequence[LogProbs] = ()) -> None:
    """Give one request its new tokens, up to the one that ends it."""
    request, text = live.request, ""
    live.catch_up()
    for at, token in enumerate(run):
        request.generated.append(token)
        if at < len(logprobs):
            live.logprobs.append(logprobs[at])
        verdict = live.stop_checker.push(token)
        text += verdict.new_text
        if verdict.finish_reason is not None:
            log.ended.append((live, verdict.finish_reason))
            break
    if text:
        log.new_text.append((request.request_id, text))


def sampled_tokens(step: OpenStep, tokens: np.ndarray, live: Mapping[int, LiveRequest]) -> SampledTokens:
    """Write down, for an observer, what was sampled for requests that still want it."""
    assert step.samples is not None
    accepted, pairs, counts = step.samples.num_accepted(), list[tuple[int, int]](), list[tuple[int, int]]()
    for request, draft_len in sampled_rows(step):
        if request.request_id in live:
            run = sampled_run(request, draft_len, tokens, accepted)
            pairs += [(request.request_id, token) for token in run]
            if draft_len:
                counts.append((request.request_id, len(run) - 1))
    return SampledTokens(tuple(pairs), step.samples.logprobs(), tuple(counts))

"""Lifecycle: what happens to live requests. They are let in, get blocks and tokens, are paused, and end.

The step loop calls it at the right moments; here is what each moment means for the queue, the managers and the
outbox. Everything that changes more than one of them runs with Ctrl-C held back.

Does not: decide, run the model, or report stages (``py_executor.py``).
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from engine.executor.commit import CommitLog, OpenStep, take_samples, take_unwatched, undo
from engine.executor.live import LiveRequest, RequestQueue
from engine.executor.records import FinishedRequest, StepCommit
from engine.executor.repeat import Repetition
from engine.executor.samples import SampleSource
from engine.interrupts import uninterrupted
from engine.llm_request import LlmRequest, RequestState
from engine.resources import BlockCopy, Reservation, ResourceManager
from engine.scheduled import GenerationSpans, ScheduledRequests

Refit = Callable[[ScheduledRequests], ScheduledRequests]
RunCopies = Callable[[tuple[BlockCopy, ...]], None]


class Lifecycle:
    """The live requests with everything they hold.

    open_steps: oldest first, shared with the loop. outbox: those that ended and were not handed out.
    """

    def __init__(
        self,
        resources: ResourceManager,
        samples: SampleSource,
        repetition: Repetition,
        *,
        refit: Refit,
        copy: RunCopies,
    ) -> None:
        """Start without requests."""
        self.queue = RequestQueue()
        self.outbox: list[FinishedRequest] = []
        self.open_steps: list[OpenStep] = []
        self.repetition = repetition
        self._resources, self._samples = resources, samples
        self._refit, self._copy = refit, copy

    def lacking(self) -> Sequence[LlmRequest] | None:
        """Name the generations without room for their next token; None where each has to be asked."""
        rows = self.repetition.stand(self.queue)
        if rows is None:
            return None
        return [rows.requests[row] for row in rows.lacking(self._resources.reserved_tokens())]

    def lay_out_rows(self, requests: Sequence[LlmRequest]) -> GenerationSpans:
        """Lay out decode rows, as ``generation_spans`` would, from those of the step before."""
        rows = self.repetition.rows_of(tuple(requests), self.queue.live)
        return GenerationSpans(rows.requests, rows.starts)

    def open(self, number: int, scheduled: ScheduledRequests) -> OpenStep:
        """Open a scheduled step; of its plain decode rows only those without room for their token may need blocks."""
        requests, spans = scheduled.generating, scheduled.generation_requests
        if not requests or scheduled.draft_len:
            return OpenStep(number, scheduled, scheduled)
        rows = self.repetition.rows_of(requests, self.queue.live)
        lacking = tuple([spans[row] for row in rows.lacking(self._resources.reserved_tokens())])
        return OpenStep(number, scheduled, dataclasses.replace(scheduled, generation_requests=lacking), rows)

    def reserve(self, step: OpenStep) -> Reservation:
        """Give the step slots, cached prefixes and blocks; its batch is fitted again in between.

        Raises: OutOfBlocksError, NoFreeSlotsError; what was granted is in the step, for ``take_back``.
        """
        resources = self._resources
        with uninterrupted():
            if step.is_repeated:
                granted = step.reservation = self._reserve_repeated(step)
            else:
                claim = resources.claim(step.to_reserve)
                step.reservation = Reservation(claim.credits, claim.slots, (), claim.block_copies)
                for request_id, slot in claim.slots:
                    self.queue.admit(self.queue.live[request_id].request, slot)
                for request_id, num_tokens in claim.credits:
                    self.queue.live[request_id].request.context_current_position = num_tokens
                step.scheduled = self._refit(step.scheduled)
                contexts = step.scheduled.context_requests
                step.to_reserve = dataclasses.replace(step.to_reserve, context_requests=contexts)
                try:
                    granted = step.reservation = resources.reserve(step.to_reserve, claim)
                except BaseException:  # the managers have undone the claim themselves
                    step.reservation = Reservation(claim.credits, claim.slots)
                    step.is_taken_back = True
                    raise
        if granted.block_copies:
            self._copy(granted.block_copies)
        for request_id, _slot in granted.slots:
            self._samples.set_slot(self.queue.live[request_id].request)
        return granted

    def _reserve_repeated(self, step: OpenStep) -> Reservation:
        """Ask only for the rows whose last block is full; what fills it is known by now, and may be reused."""
        if not step.to_reserve.generation_requests:
            return Reservation(num_free_blocks=self._resources.kv_cache.num_free_blocks)
        for request in step.to_reserve.generating:
            self._resources.commit(request.request_id, request.num_tokens - 1)
        return self._resources.reserve(step.to_reserve)

    def take_back(self, step: OpenStep) -> None:
        """Undo what a step that was not launched has got."""
        granted = undo(step, self.queue.live)
        if not step.is_taken_back:
            self._resources.rollback(granted)
        for request_id, _slot in granted.slots:
            self.queue.withdraw(self.queue.live[request_id].request)
        self.repetition.forget()

    def commit(self, step: OpenStep, tokens: np.ndarray, *, is_watched: bool) -> CommitLog:
        """Make a step final: the only place where a running request gets a token. Shapes: tokens [1 + K, A]."""
        if is_watched or step.scheduled.draft_len:
            log = take_samples(step, tokens, self.queue.live)
        else:
            log = take_unwatched(step, tokens, self.queue.live, self.repetition.eos_table)
        if step.scheduled.draft_len:
            self.repetition.forget()  # where its requests stand was counted as if every draft were accepted
        self._commit_blocks(step)
        for live, reason in log.ended:
            self.finish(live, reason)
        return log

    def _commit_blocks(self, step: OpenStep) -> None:
        """Declare what the step computed final, as far as its requests are still there."""
        resources, live = self._resources, self.queue.live
        for span in step.scheduled.context_requests:
            if span.request_id in live:
                if live[span.request_id].request.cached_tokens is None:
                    live[span.request_id].request.cached_tokens = dict(_credits(step)).get(span.request_id, 0)
                resources.commit(span.request_id, span.end)
        if step.is_repeated:
            return  # its full blocks are declared when the next ones are asked for
        if step.rows is not None:
            for row in step.rows.filling(resources.kv_cache.tokens_per_block):
                request = step.rows.requests[row]
                resources.commit(request.request_id, request.num_tokens - 1)
        elif step.scheduled.draft_len:
            for request in step.scheduled.generating:
                if request.request_id in live:
                    resources.commit(request.request_id, request.num_tokens - 1)
                    if not request.num_in_flight:  # else the step behind needs the room
                        resources.rewind(request.request_id, request.num_tokens)

    def look_ahead(self, step: OpenStep) -> None:
        """While the device works on a step, do what the ends of its requests will need: their text, their blocks."""
        generating, rows = step.scheduled.generating, step.rows
        with uninterrupted():
            for request in generating if rows is None else [rows.requests[row] for row in rows.ending()]:
                if request.state is RequestState.GENERATION_TO_COMPLETE and request.request_id in self.queue.live:
                    self.queue.live[request.request_id].catch_up()
                    self._resources.commit(request.request_id, num_final_tokens(request))

    def finish(self, live: LiveRequest, reason: str, error: str | None = None) -> None:
        """End a request: what it holds goes back, its output waits to be handed out."""
        request = live.request
        if reason != "error":  # after an error nobody knows what lies in its blocks
            self._resources.commit(request.request_id, num_final_tokens(request))
        request.move_to(RequestState.GENERATION_COMPLETE)
        request.finish_reason, request.error = reason, error
        if reason not in ("stop", "length"):
            live.catch_up()
            live.stop_checker.end()
        self._resources.free(request.request_id)
        self.queue.remove(request)
        self.repetition.drop(request, self.open_steps)
        self.outbox.append(FinishedRequest(request, live.stop_checker.text, tuple(live.logprobs)))

    def pause(self, requests: Sequence[LlmRequest]) -> None:
        """Take everything from requests that must wait; they compute their tokens again when they come back."""
        with uninterrupted():
            for request in requests:
                self._resources.commit(request.request_id, num_final_tokens(request))
                self._resources.free(request.request_id)
                self.queue.withdraw(request)
                request.pause()
            self.repetition.forget()

    def fail(self, step: OpenStep, error: Exception) -> None:
        """End the requests of a step that raised; the others go on."""
        with uninterrupted():
            for span in step.scheduled.spans:
                if span.request_id in self.queue.live:
                    self.finish(self.queue.live[span.request_id], "error", f"{type(error).__name__}: {error}")

    def end_a_standstill(self, scheduled: ScheduledRequests) -> None:
        """End the oldest request when nothing runs, nothing is on its way and nobody was let in."""
        if self.queue.live and not self.open_steps and not scheduled.paused_requests:
            first = next(iter(scheduled.deferrals), None)
            lack = "" if first is None else f": {first.reason.value}, needs {first.needed}, has {first.available}"
            message = f"SchedulingError: no request can run, and none will{lack}"
            self.finish(next(iter(self.queue.live.values())), "error", message)

    def commit_record(self, step: OpenStep, log: CommitLog) -> StepCommit:
        """Write down what became final, for an observer."""
        finished = tuple([(live.request.request_id, reason) for live, reason in log.ended])
        return StepCommit(
            finished=finished,
            continued=tuple([span.request_id for span in step.scheduled.spans if span.request_id in self.queue.live]),
            paused=tuple([request.request_id for request in step.scheduled.paused_requests]),
            freed=tuple([request_id for request_id, _ in finished]),
            new_text=tuple(log.new_text),
            num_free_blocks=self._resources.kv_cache.num_free_blocks,
        )

    def check(self) -> None:
        """Recompute: resources conserved, nothing held by requests that are gone, counts as the requests say."""
        self._resources.check()
        self.queue.check()
        self.repetition.check(self._resources.kv_cache, self.queue.live)
        held = {i for i in self._resources.kv_cache.live_request_ids if i < 1 << 62}  # dummies have the ids above
        assert held <= set(self.queue.live), f"blocks held by finished requests {held - set(self.queue.live)}"


def num_final_tokens(request: LlmRequest) -> int:
    """Count the tokens whose keys and values are computed for good: the newest one is never fed before it is known."""
    if request.is_context:
        return request.context_current_position
    return request.num_tokens - 1


def _credits(step: OpenStep) -> tuple[tuple[int, int], ...]:
    return () if step.reservation is None else step.reservation.credits

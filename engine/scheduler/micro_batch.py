"""MicroBatchScheduler: what runs in this step, within the row and request budgets. Second scheduling stage.

Running work goes first: every generation takes one row before any context gets one. Then contexts, oldest
first. Without chunking a context needs its whole prompt at once and nobody overtakes it. With "fcfs" each takes
what is left; a chunk that is cut short ends on a multiple of the chunk unit, so that only whole blocks are left
behind, and what the rounding leaves over may finish a shorter prompt.

Does not: know blocks (``capacity.py`` let these requests in), reserve, or change a request.
Source: TensorRT-LLM's micro-batch scheduler and its first-come-first-served chunking.
"""

from collections.abc import Sequence

from engine.config import ChunkingName
from engine.llm_request import LlmRequest, RequestState
from engine.reasons import DeferralReason
from engine.scheduled import BudgetUse, Deferral, ScheduledRequests, Span, context_span, generation_span


def chunk_rows(start: int, remaining: int, num_tokens_left: int, chunk_unit: int) -> int:
    """Size a chunk that begins at position ``start``: all of ``remaining``, or up to the last unit that fits."""
    if remaining <= num_tokens_left:
        return remaining
    end = (start + num_tokens_left) // chunk_unit * chunk_unit
    return max(0, end - start)


def in_row_order(contexts: Sequence[Span]) -> tuple[Span, ...]:
    """Put unfinished chunks (no logit row) before last chunks, each in the order given."""
    return tuple(sorted(contexts, key=lambda span: span.num_logit_rows > 0))


class MicroBatchScheduler:
    """The budgets of one step; stateless.

    Units of its deferrals: rows (TOKEN_BUDGET, CHUNK_TRUNCATED, BEHIND_BLOCKED_REQUEST: what the request could
    use, what was left) and requests (REQUEST_BUDGET).
    """

    def __init__(
        self, *, max_batch_size: int, max_num_tokens: int, chunking: ChunkingName | None, chunk_unit: int
    ) -> None:
        """Hold the budgets. ``chunk_unit`` matters only with chunking."""
        self._max_batch_size = max_batch_size
        self._max_num_tokens = max_num_tokens
        self._chunking = chunking
        self._chunk_unit = chunk_unit

    def schedule(
        self,
        fitting: Sequence[LlmRequest],
        deferrals: Sequence[Deferral] = (),
        num_free_blocks: int | None = None,
        *,
        paused: Sequence[LlmRequest] = (),
    ) -> ScheduledRequests:
        """Make the step's record from the requests that fit and the deferrals so far.

        Order: that of ``ScheduledRequests``; ``num_free_blocks`` is only written into the record.
        """
        waiting = list(deferrals)
        generations = [r for r in fitting if r.state is RequestState.GENERATION_IN_PROGRESS]
        contexts = [r for r in fitting if r.state is RequestState.CONTEXT_INIT]
        generation_spans = self._take_generations(generations, waiting)
        context_spans = self._take_contexts(contexts, len(generation_spans), waiting) if contexts else ()
        num_tokens = len(generation_spans) + sum(span.num_rows for span in context_spans)
        budget = BudgetUse(
            num_tokens=num_tokens,
            max_num_tokens=self._max_num_tokens,
            num_requests=len(generation_spans) + len(context_spans),
            max_batch_size=self._max_batch_size,
            num_free_blocks=num_free_blocks,
        )
        return ScheduledRequests(context_spans, generation_spans, tuple(paused), tuple(waiting), budget)

    def _take_generations(self, generations: list[LlmRequest], deferrals: list[Deferral]) -> tuple[Span, ...]:
        num_places = min(self._max_batch_size, self._max_num_tokens)
        if len(generations) > num_places:
            by_rows = self._max_num_tokens < self._max_batch_size
            reason = DeferralReason.TOKEN_BUDGET if by_rows else DeferralReason.REQUEST_BUDGET
            deferrals.extend(Deferral(r.request_id, reason, 1, 0) for r in generations[num_places:])
            generations = generations[:num_places]
        # Rows without a previous sample on the device come first: input preparation lays them out by this order.
        generations.sort(key=_has_previous_sample)
        return tuple([generation_span(request) for request in generations])

    def _take_contexts(
        self, contexts: Sequence[LlmRequest], num_taken: int, deferrals: list[Deferral]
    ) -> tuple[Span, ...]:
        spans: list[Span] = []
        num_tokens_left = self._max_num_tokens - num_taken
        blocked = False
        for request in contexts:
            remaining = request.context_remaining_length
            if blocked:
                reason = DeferralReason.BEHIND_BLOCKED_REQUEST
                deferrals.append(Deferral(request.request_id, reason, remaining, num_tokens_left))
            elif num_taken + len(spans) >= self._max_batch_size:
                deferrals.append(Deferral(request.request_id, DeferralReason.REQUEST_BUDGET, 1, 0))
            else:
                rows = self._rows_for(request, num_tokens_left)
                if rows < remaining:
                    reason = DeferralReason.CHUNK_TRUNCATED if rows else DeferralReason.TOKEN_BUDGET
                    deferrals.append(Deferral(request.request_id, reason, remaining, num_tokens_left))
                    blocked = self._chunking is None
                if rows:
                    spans.append(context_span(request, rows))
                    num_tokens_left -= rows
        return in_row_order(spans)

    def _rows_for(self, request: LlmRequest, num_tokens_left: int) -> int:
        remaining = request.context_remaining_length
        if self._chunking is None:
            return remaining if remaining <= num_tokens_left else 0
        return chunk_rows(request.context_current_position, remaining, num_tokens_left, self._chunk_unit)


def _has_previous_sample(request: LlmRequest) -> bool:
    return request.py_batch_idx is not None

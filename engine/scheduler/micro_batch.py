"""MicroBatchScheduler: what runs in this step, within the row and request budgets. Second scheduling stage.

Running work goes first: every generation takes one row, or 1 + K with drafts, before any context gets one. Then
contexts, oldest first, by the chosen chunking. A request whose last token is on its way (GENERATION_TO_COMPLETE) is not
run again.

Does not: know blocks (``capacity.py`` let these requests in), reserve, or change a request.
Source: TensorRT-LLM's micro-batch scheduler.
"""

from collections.abc import Callable, Sequence

from engine.config import ChunkingName
from engine.llm_request import LlmRequest, RequestState
from engine.reasons import DeferralReason
from engine.scheduled import (
    BudgetUse,
    Deferral,
    RowKind,
    ScheduledRequests,
    Span,
    generation_spans,
    verify_span,
)
from engine.scheduler.chunking import Prompt, equal_progress, first_come, whole
from engine.scheduler.deferrals import with_more
from engine.scheduler.drafts import any_drafts_left


def in_row_order(contexts: Sequence[Span]) -> tuple[Span, ...]:
    """Put unfinished chunks (no logit row) before last chunks, each in the order given."""
    return tuple(sorted(contexts, key=lambda span: span.num_logit_rows > 0))


class MicroBatchScheduler:
    """The budgets of one step; stateless.

    Units of its deferrals: rows (TOKEN_BUDGET, CHUNK_TRUNCATED, BEHIND_BLOCKED_REQUEST: what the request could
    use, what was left) and requests (REQUEST_BUDGET).
    """

    def __init__(
        self,
        *,
        max_batch_size: int,
        max_num_tokens: int,
        chunking: ChunkingName | None,
        chunk_unit: int,
        draft_len: int = 0,
    ) -> None:
        """Hold the budgets. ``chunk_unit`` matters only with chunking. draft_len: K of a step that has drafts."""
        self._max_batch_size = max_batch_size
        self._max_num_tokens = max_num_tokens
        self._chunking = chunking
        self._chunk_unit = chunk_unit
        self._draft_len = draft_len

    def schedule(
        self,
        fitting: Sequence[LlmRequest],
        deferrals: Sequence[Deferral] = (),
        num_free_blocks: int | None = None,
        *,
        paused: Sequence[LlmRequest] = (),
        reusable: Callable[[LlmRequest], int] | None = None,
        can_draft: bool = True,
        lay_out: Callable[[Sequence[LlmRequest]], Sequence[Span]] = generation_spans,
    ) -> ScheduledRequests:
        """Make the step's record from the requests that fit and the deferrals so far.

        Order: that of ``ScheduledRequests``; ``num_free_blocks`` is only written into the record. reusable: says how
        many prompt tokens a newcomer is going to find in the cache; its chunk begins behind them, and refit looks again
        when they were claimed. can_draft: whether the pool has blocks for drafts. lay_out: makes plain decode rows, for
        a caller that knows where the requests stand.
        """
        generations, contexts = _split(fitting)
        more: list[Deferral] = []
        running = self._take_generations(generations, more)
        prompts = _prompts(contexts, reusable, self._max_num_tokens - len(running)) if contexts else []
        draft_len = self._choose_draft_len(generations, prompts) if can_draft and self._draft_len else 0
        spans = tuple([verify_span(r, draft_len) for r in running]) if draft_len else lay_out(running)
        num_rows = len(spans) * (1 + draft_len)
        context_spans: tuple[Span, ...] = ()
        if contexts:
            context_spans = self._take_contexts(contexts, prompts, more, num_taken=len(spans), num_rows=num_rows)
        budget = BudgetUse(
            num_tokens=num_rows + sum([span.num_rows for span in context_spans]),
            max_num_tokens=self._max_num_tokens,
            num_requests=len(spans) + len(context_spans),
            max_batch_size=self._max_batch_size,
            num_free_blocks=num_free_blocks,
        )
        return ScheduledRequests(
            context_spans, spans, tuple(paused), with_more(deferrals, more), budget, draft_len=draft_len
        )

    def _take_generations(self, generations: list[LlmRequest], deferrals: list[Deferral]) -> list[LlmRequest]:
        num_places = min(self._max_batch_size, self._max_num_tokens)
        if len(generations) > num_places:
            by_rows = self._max_num_tokens < self._max_batch_size
            reason = DeferralReason.TOKEN_BUDGET if by_rows else DeferralReason.REQUEST_BUDGET
            deferrals.extend([Deferral(r.request_id, reason, 1, 0) for r in generations[num_places:]])
            generations = generations[:num_places]
        # Rows without a previous sample on the device come first: input preparation lays them out by this order.
        if None in [request.py_batch_idx for request in generations]:
            generations = sorted(generations, key=lambda request: request.py_batch_idx is not None)
        return generations

    def _choose_draft_len(self, generations: Sequence[LlmRequest], prompts: Sequence[Prompt]) -> int:
        """Return K when somebody has drafts, every generation can run 1 + K rows, and no prompt pays for it."""
        count, draft_len = len(generations), self._draft_len
        left = self._max_num_tokens - count * (1 + draft_len)
        if left < 0 or count > self._max_batch_size or not any_drafts_left(generations):
            return 0
        oldest = prompts[:1] if count < self._max_batch_size else ()
        loses = any(self._sizes(oldest, left + count * draft_len)) and not any(self._sizes(oldest, left))
        return 0 if loses else draft_len

    def _take_contexts(
        self,
        contexts: Sequence[LlmRequest],
        prompts: Sequence[Prompt],
        deferrals: list[Deferral],
        *,
        num_taken: int,
        num_rows: int,
    ) -> tuple[Span, ...]:
        num_places, left = self._max_batch_size - num_taken, self._max_num_tokens - num_rows
        sizes = self._sizes(prompts[:num_places], left)
        if self._chunking == "equal_progress":
            left -= sum(sizes)
        spans: list[Span] = []
        is_blocked = False
        for request, (start, remaining), rows in zip(contexts, prompts, sizes, strict=False):
            if rows:
                spans.append(_context_span(request, start, rows))
            if rows < remaining:
                reason = DeferralReason.CHUNK_TRUNCATED if rows else DeferralReason.TOKEN_BUDGET
                reason = DeferralReason.BEHIND_BLOCKED_REQUEST if is_blocked else reason
                room = rows if rows and self._chunking == "equal_progress" else left
                deferrals.append(Deferral(request.request_id, reason, remaining, room))
                is_blocked = self._chunking is None
            if self._chunking != "equal_progress":
                left -= rows
        deferrals.extend([Deferral(r.request_id, DeferralReason.REQUEST_BUDGET, 1, 0) for r in contexts[num_places:]])
        return in_row_order(spans)

    def _sizes(self, prompts: Sequence[Prompt], num_tokens_left: int) -> list[int]:
        if self._chunking is None:
            return whole(prompts, num_tokens_left, max_num_tokens=self._max_num_tokens, chunk_unit=self._chunk_unit)
        rule = equal_progress if self._chunking == "equal_progress" else first_come
        return rule(prompts, num_tokens_left, chunk_unit=self._chunk_unit)


def _split(fitting: Sequence[LlmRequest]) -> tuple[list[LlmRequest], list[LlmRequest]]:
    generation, context = RequestState.GENERATION_IN_PROGRESS, RequestState.CONTEXT_INIT
    generations = [request for request in fitting if request.state is generation]
    if len(generations) == len(fitting):
        return generations, []
    return generations, [request for request in fitting if request.state is context]


def _prompts(
    contexts: Sequence[LlmRequest], reusable: Callable[[LlmRequest], int] | None, num_tokens_left: int
) -> list[Prompt]:
    # Nobody is asked about prompts behind those that fill the step: they get a few rows at most, wherever they begin.
    prompts: list[Prompt] = []
    for request in contexts:
        start = request.context_current_position
        if not start and reusable is not None and num_tokens_left > 0:
            start = reusable(request)
        prompts.append((start, request.py_prompt_len - start))
        num_tokens_left -= request.py_prompt_len - start
    return prompts


def _context_span(request: LlmRequest, start: int, rows: int) -> Span:
    is_last = start + rows == request.py_prompt_len
    return Span(request, RowKind.CONTEXT, start, rows, 1 if is_last else 0)

"""Refit: check the budget again after reservation, and lay the contexts out anew from where they now stand.

Reservation may move a context's cursor (prompt tokens found in the cache): the same chunk then reaches further,
perhaps to the prompt's end, where it wants a logit row; and a reuse that was counted on and did not happen makes
the step too long. Then chunks shrink from the back, a unit's worth of progress staying with each; only when
that is not enough is a context deferred. A step is never run over its budget.

Does not: reserve or free. A context deferred here keeps its blocks and is first in line next step.
Source: TensorRT-LLM re-bins after its resource managers ran, and fits the token budget in the same place.
"""

import dataclasses
from collections.abc import Sequence

from engine.config import ChunkingName
from engine.reasons import DeferralReason
from engine.scheduled import Deferral, ScheduledRequests, Span, context_span
from engine.scheduler.micro_batch import in_row_order


def refit(
    scheduled: ScheduledRequests, *, max_num_tokens: int, chunk_unit: int, chunking: ChunkingName | None
) -> ScheduledRequests:
    """Return the record that fits; the same object when nothing had to change (a decode step never does)."""
    if not scheduled.context_requests:
        return scheduled
    contexts = list(in_row_order([_from_cursor(span, chunk_unit) for span in scheduled.context_requests]))
    num_generations = len(scheduled.generation_requests)
    excess = num_generations + sum(span.num_rows for span in contexts) - max_num_tokens
    deferrals: dict[int, Deferral] = {}
    if excess > 0 and chunking is not None:
        excess = _shrink(contexts, excess, chunk_unit, deferrals)
    while excess > 0 and contexts:
        dropped = contexts.pop()
        excess -= dropped.num_rows
        remaining = dropped.request.context_remaining_length
        left = max_num_tokens - num_generations - sum(span.num_rows for span in contexts)
        deferrals[dropped.request_id] = Deferral(
            dropped.request_id, DeferralReason.TOKEN_BUDGET, remaining, max(0, left)
        )
    assert excess <= 0, f"{num_generations} generations exceed the budget of {max_num_tokens} rows"
    place = {span.request_id: index for index, span in enumerate(scheduled.context_requests)}
    ordered = in_row_order(sorted(contexts, key=lambda span: place[span.request_id]))
    if ordered == scheduled.context_requests:
        return scheduled
    budget = dataclasses.replace(
        scheduled.budget,
        num_tokens=num_generations + sum(span.num_rows for span in ordered),
        num_requests=num_generations + len(ordered),
    )
    return dataclasses.replace(
        scheduled, context_requests=ordered, deferrals=_merge(scheduled.deferrals, contexts, deferrals), budget=budget
    )


def _from_cursor(span: Span, chunk_unit: int) -> Span:
    # The same number of rows from the request's present cursor, ending at the prompt's end or on a unit.
    start, remaining = span.request.context_current_position, span.request.context_remaining_length
    if start == span.start:
        return span
    if span.num_rows >= remaining:
        return context_span(span.request, remaining)
    end = (start + span.num_rows) // chunk_unit * chunk_unit  # an unfinished first chunk has a unit of rows or more
    return context_span(span.request, end - start)


def _shrink(contexts: list[Span], excess: int, chunk_unit: int, deferrals: dict[int, Deferral]) -> int:
    # Shorten spans in place, from the back, to the last unit that fits or the first after the start.
    for index in range(len(contexts) - 1, -1, -1):
        span = contexts[index]
        end = max((span.end - excess) // chunk_unit, span.start // chunk_unit + 1) * chunk_unit
        if excess <= 0 or end >= span.end:
            continue
        excess -= span.end - end
        contexts[index] = context_span(span.request, end - span.start)
        deferrals[span.request_id] = Deferral(
            span.request_id,
            DeferralReason.CHUNK_TRUNCATED,
            needed=span.request.context_remaining_length,
            available=end - span.start,
        )
    return excess


def _merge(old: Sequence[Deferral], contexts: list[Span], new: dict[int, Deferral]) -> tuple[Deferral, ...]:
    # A prompt that now runs to its end was not cut short after all; a newer verdict replaces an older one.
    to_the_end = {span.request_id for span in contexts if span.num_logit_rows}
    kept = [d for d in old if d.request_id not in to_the_end and d.request_id not in new]
    return (*kept, *new.values())

"""Refit: check the budget again after reservation, and lay the contexts out anew from where they now stand.

Reservation may move a context's cursor (prompt tokens found in the cache): the same chunk then reaches further,
perhaps to the prompt's end, where it wants a logit row; and a reuse that was counted on and did not happen makes
the step too long. Then chunks shrink from the back, a unit's worth of progress staying with each; only when
that is not enough is a context deferred. Without chunking a prompt runs whole or is deferred. A step is never run over
its budget.

Does not: reserve or free. A context deferred here keeps its blocks and is first in line next step.
Source: TensorRT-LLM re-bins after its resource managers ran, and fits the token budget in the same place.
"""

import dataclasses
from collections.abc import Sequence

from engine.config import ChunkingName
from engine.reasons import DeferralReason
from engine.scheduled import Deferral, ScheduledRequests, Span, context_span
from engine.scheduler.deferrals import with_more, without
from engine.scheduler.micro_batch import in_row_order


def refit(
    scheduled: ScheduledRequests, *, max_num_tokens: int, chunk_unit: int, chunking: ChunkingName | None
) -> ScheduledRequests:
    """Return the record that fits; the same object when nothing had to change (a decode step never does)."""
    if not scheduled.context_requests:
        return scheduled
    num_generations = len(scheduled.generation_requests)
    num_rows = num_generations * (1 + scheduled.draft_len)
    unit = chunk_unit if chunk_unit <= max_num_tokens else 1
    longest = max_num_tokens if chunking is None else 0  # a prompt up to here is not cut
    contexts = list(in_row_order([_from_cursor(span, unit, longest) for span in scheduled.context_requests]))
    deferrals: dict[int, Deferral] = {}
    excess = num_rows + sum([span.num_rows for span in contexts]) - max_num_tokens
    if excess > 0:
        _fit(contexts, excess, unit, longest, deferrals)
    num_rows += sum([span.num_rows for span in contexts])
    assert num_rows <= max_num_tokens, f"{num_generations} generations exceed the budget of {max_num_tokens} rows"
    place = {span.request_id: index for index, span in enumerate(scheduled.context_requests)}
    ordered = in_row_order(sorted(contexts, key=lambda span: place[span.request_id]))
    if ordered == scheduled.context_requests:
        return scheduled
    budget = dataclasses.replace(scheduled.budget, num_tokens=num_rows, num_requests=num_generations + len(ordered))
    return dataclasses.replace(
        scheduled, context_requests=ordered, deferrals=_merge(scheduled.deferrals, contexts, deferrals), budget=budget
    )


def _from_cursor(span: Span, chunk_unit: int, longest: int) -> Span:
    # The same number of rows from the request's present cursor, ending on a unit; or what is left, if that was meant.
    start, remaining = span.request.context_current_position, span.request.context_remaining_length
    if start == span.start:
        return span
    if span.num_logit_rows or span.num_rows >= remaining or remaining <= longest:
        return context_span(span.request, remaining)
    end = max((start + span.num_rows) // chunk_unit, start // chunk_unit + 1) * chunk_unit
    return context_span(span.request, min(end - start, remaining))


def _fit(contexts: list[Span], excess: int, chunk_unit: int, longest: int, deferrals: dict[int, Deferral]) -> None:
    # In place: shorten what may be cut, then drop from the back.
    excess = _shrink(contexts, excess, chunk_unit, longest, deferrals)
    while excess > 0 and contexts:
        dropped = contexts.pop()
        excess -= dropped.num_rows
        deferrals[dropped.request_id] = Deferral(
            dropped.request_id,
            DeferralReason.TOKEN_BUDGET,
            needed=dropped.request.context_remaining_length,
            available=max(0, -excess),
        )


def _shrink(contexts: list[Span], excess: int, chunk_unit: int, longest: int, deferrals: dict[int, Deferral]) -> int:
    # Shorten spans in place, from the back, to the last unit that fits or the first after the start.
    for index in range(len(contexts) - 1, -1, -1):
        span = contexts[index]
        end = max((span.end - excess) // chunk_unit, span.start // chunk_unit + 1) * chunk_unit
        if excess <= 0 or end >= span.end or span.request.context_remaining_length <= longest:
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


def _merge(old: Sequence[Deferral], contexts: list[Span], new: dict[int, Deferral]) -> Sequence[Deferral]:
    # A prompt that now runs to its end was not cut short after all; a newer verdict replaces an older one.
    to_the_end = frozenset([span.request_id for span in contexts if span.num_logit_rows])
    return with_more(without(old, to_the_end | new.keys()), tuple(new.values()))

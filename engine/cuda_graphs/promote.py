"""Promotion of final contexts: one-token remainders join the decode rows, so that the step can take a decode graph.

A context whose last chunk is a single token computes one row and wants one logit: it has the shape of a decode row,
and differs only in where its token comes from (the prompt, not the previous sample). Chunking and prefix reuse leave
such remainders often. All contexts of a step are promoted or none: a single real prefill keeps the step from the graph
anyway. The requests stay contexts; only the layout of this step changes, so commit is the same either way.

Does not: look for a graph. When there is none, the original batch runs unpromoted: as a prefill chain if one holds its
rows, else eagerly. Torch-free.
Source: TensorRT-LLM's promotion of final contexts, for one beam and no drafts.
"""

from engine.scheduled import RowKind, ScheduledRequests, Span


def promote_final_contexts(batch: ScheduledRequests, *, graphs_enabled: bool, draft_len: int = 0) -> tuple[Span, ...]:
    """Return the contexts as decode rows, or () unless every gate is open.

    Gates: graphs on, no drafts, at least one context, and each of them the last chunk with one token left.
    Order: that of the contexts. The rows stand before the generations: their tokens come from the host.
    """
    if not graphs_enabled or draft_len or not all(_is_final_token(span) for span in batch.context_requests):
        return ()
    return tuple([_as_decode_row(span) for span in batch.context_requests])


def _is_final_token(span: Span) -> bool:
    request = span.request
    at_cursor = span.start == request.context_current_position
    return at_cursor and span.num_rows == 1 and span.num_logit_rows == 1 and span.end == request.py_prompt_len


def _as_decode_row(span: Span) -> Span:
    # EXTEND, not GENERATION: the row's position is the context's cursor and its token is the host's. py_batch_idx would
    # speak of an earlier life of the request.
    return Span(span.request, RowKind.EXTEND, span.start, 1, 1)

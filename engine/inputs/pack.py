"""Pack a padded batch into host lists: contexts, then generations, then dummies.

Pure and torch-free: spans and block tables in, ``HostInputs`` out. It reads each span's three integers and never
asks for the mode. Row order is a correctness rule: the tokens that the host knows form one contiguous segment, and
those that lie on the device from the previous step form the next one, so that each is written by one operation.

A verify row runs the newest token and the drafts behind it. While the host knows that token, all of them are host
tokens. When samples of the request are still on the device, it does not even know how many drafts were accepted: the
row is laid out for the best case, and the device derives its tokens and moves it down.

Does not: choose the batch, pad, or copy. Source: the context, extend and generation packing of TensorRT-LLM.
"""

from collections.abc import Callable, Sequence

from engine.inputs.host_inputs import DraftLayout, HostInputs, LogitRows, Segment, TokenSource
from engine.llm_request import LlmRequest
from engine.scheduled import PaddedBatch, RowKind, Span

BlockTable = Callable[[int], tuple[int, ...]]


def token_source(span: Span) -> TokenSource:
    """Say where a span's tokens come from: dummies are zero, a previous sample is gathered, the rest is host."""
    request = span.request
    if request.spec.is_dummy:
        return TokenSource.ZERO
    if span.kind is RowKind.GENERATION:
        return TokenSource.HOST if request.py_batch_idx is None else TokenSource.DEVICE
    if span.draft_tokens and request.num_in_flight:
        return TokenSource.DEVICE
    return TokenSource.HOST


def kv_limit(span: Span) -> int:
    """Count the KV tokens that a span's request can ever have: its last token is never fed back.

    Rows at or behind this position can only be drafts behind the request's end.
    """
    return span.request.max_total_tokens - 1


def pack(batch: PaddedBatch, block_table: BlockTable) -> HostInputs:
    """Lay out every row of the step.

    Shapes: see ``HostInputs``. Order: that of ``batch.spans``, which must be host rows, device rows, zero rows.
    """
    spans, sources = batch.spans, _sources(batch)
    input_ids: list[int] = []
    position_ids: list[int] = []
    previous: list[LlmRequest] = []
    gather_ids: list[int] = []
    seq_slots: list[int | None] = []
    for span, source in zip(spans, sources, strict=True):
        request, start, num_rows, num_logit_rows = span.request, span.start, span.num_rows, span.num_logit_rows
        position_ids.extend((start,) if num_rows == 1 else range(start, start + num_rows))
        if source is TokenSource.DEVICE:
            previous.append(request)
        elif source is TokenSource.HOST:
            input_ids.extend(request.token_range(start, start + num_rows - len(span.draft_tokens)))
            input_ids.extend(span.draft_tokens)
        if num_logit_rows:
            end_row = len(position_ids)
            gather_ids.extend(range(end_row - num_logit_rows, end_row))
            seq_slots.extend([request.py_seq_slot] * num_logit_rows)
    drafts = _drafts(batch, previous)
    if drafts is not None:
        _keep_dead_rows_in_range(position_ids, spans, sources, drafts)
    request_ids = [span.request.spec.request_id for span in spans]
    return HostInputs(
        input_ids=tuple(input_ids),
        position_ids=tuple(position_ids),
        previous_batch_indices=_slots([request.py_batch_idx for request in previous]),
        logit_rows=LogitRows(tuple(gather_ids), _slots(seq_slots)),
        sequence_lengths=tuple([span.num_rows for span in spans]),
        prompt_lengths=tuple([span.request.py_prompt_len for span in spans]),
        request_ids=tuple(request_ids),
        num_cached_tokens_per_seq=tuple([span.start for span in spans]),
        block_tables=tuple(map(block_table, request_ids)),
        num_contexts=len([None for span in spans if span.kind is RowKind.CONTEXT]),
        segments=_segments(spans, sources),
        drafts=drafts,
    )


def _slots(found: list[int | None]) -> tuple[int, ...]:
    """Take the slots of requests that must have one."""
    slots = tuple([slot for slot in found if slot is not None])
    assert len(slots) == len(found), "a request of the step has no slot"
    return slots


def _sources(batch: PaddedBatch) -> list[TokenSource]:
    """Say for each span where its tokens come from.

    Beside rows that the device derives, one whose sample the host has read stands among them too if that sample is
    still the first of its slot: the order of the rows is that of ``py_batch_idx``.
    """
    spans, sources = batch.spans, [token_source(span) for span in batch.spans]
    if batch.scheduled.draft_len and TokenSource.DEVICE in sources:
        for at, span in enumerate(spans):
            if span.draft_tokens and span.request.py_batch_idx is not None:
                sources[at] = TokenSource.DEVICE
    return sources


def _drafts(batch: PaddedBatch, on_device: Sequence[LlmRequest]) -> DraftLayout | None:
    """Describe the drafts of this step and of the samples on the device; None for a step that knows neither.

    on_device: whose rows take their tokens from there.
    """
    draft_len, unread = batch.scheduled.draft_len, [request.num_in_flight for request in on_device]
    if not draft_len and max(unread, default=0) < 2:
        return None
    previous = tuple([max(0, count - 1) for count in unread])
    return DraftLayout(draft_len, previous, tuple([kv_limit(span) for span in batch.spans]))


def _keep_dead_rows_in_range(
    position_ids: list[int], spans: Sequence[Span], sources: Sequence[TokenSource], drafts: DraftLayout
) -> None:
    """Put rows behind a request's last position onto it: tables of positions end there, and they stay dead.

    The device does the same for the rows that it moves.
    """
    row = 0
    for span, source, limit in zip(spans, sources, drafts.kv_limits, strict=True):
        if span.end > limit and source is not TokenSource.DEVICE:
            for at in range(max(0, limit - span.start), span.num_rows):
                position_ids[row + at] = limit
        row += span.num_rows


def _segments(spans: Sequence[Span], sources: Sequence[TokenSource]) -> tuple[Segment, Segment, Segment]:
    num_host, num_device = sources.count(TokenSource.HOST), sources.count(TokenSource.DEVICE)
    num_zero = len(sources) - num_host - num_device
    ordered = [TokenSource.HOST] * num_host + [TokenSource.DEVICE] * num_device + [TokenSource.ZERO] * num_zero
    assert sources == ordered, f"rows out of order: {[s.value for s in sources]}"
    rows = [span.num_rows for span in spans]
    device_start = sum(rows[:num_host])
    zero_start = device_start + sum(rows[num_host : num_host + num_device])
    return (
        Segment(TokenSource.HOST, 0, device_start),
        Segment(TokenSource.DEVICE, device_start, zero_start),
        Segment(TokenSource.ZERO, zero_start, sum(rows)),
    )

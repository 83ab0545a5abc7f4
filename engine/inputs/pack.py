"""Pack a padded batch into host lists: contexts, then generations, then dummies.

Pure and torch-free: spans and block tables in, ``HostInputs`` out. It reads each span's three integers and never
asks for the mode. Row order is a correctness rule: the tokens that the host knows form one contiguous segment, and
those that lie on the device from the previous step form the next one, so that each is written by one operation.

Does not: choose the batch, pad, or copy. Source: the context, extend and generation packing of TensorRT-LLM.
"""

from collections.abc import Callable, Sequence

from engine.inputs.host_inputs import HostInputs, Segment, TokenSource
from engine.scheduled import PaddedBatch, RowKind, Span

BlockTable = Callable[[int], tuple[int, ...]]


def token_source(span: Span) -> TokenSource:
    """Say where a span's tokens come from: dummies are zero, a previous sample is gathered, the rest is host."""
    if span.request.is_dummy:
        return TokenSource.ZERO
    if span.kind is RowKind.GENERATION and span.request.py_batch_idx is not None:
        return TokenSource.DEVICE
    return TokenSource.HOST


def pack(batch: PaddedBatch, block_table: BlockTable) -> HostInputs:
    """Lay out every row of the step.

    Shapes: see ``HostInputs``. Order: that of ``batch.spans``, which must be host rows, device rows, zero rows.
    """
    spans = batch.spans
    sources = [token_source(span) for span in spans]
    input_ids: list[int] = []
    position_ids: list[int] = []
    previous: list[int] = []
    gather_ids: list[int] = []
    seq_slots: list[int] = []
    for span, source in zip(spans, sources, strict=True):
        first_row = len(position_ids)
        position_ids.extend(range(span.start, span.end))
        if source is TokenSource.HOST:
            input_ids.extend(span.request.token_range(span.start, span.end))
        elif source is TokenSource.DEVICE:
            assert span.request.py_batch_idx is not None
            previous.append(span.request.py_batch_idx)
        if span.num_logit_rows:
            last_row = first_row + span.num_rows
            gather_ids.extend(range(last_row - span.num_logit_rows, last_row))
            assert span.request.py_seq_slot is not None, f"request {span.request_id} has no slot"
            seq_slots.extend([span.request.py_seq_slot] * span.num_logit_rows)
    return HostInputs(
        input_ids=tuple(input_ids),
        position_ids=tuple(position_ids),
        previous_batch_indices=tuple(previous),
        gather_ids=tuple(gather_ids),
        seq_slots=tuple(seq_slots),
        sequence_lengths=tuple([span.num_rows for span in spans]),
        prompt_lengths=tuple([span.request.py_prompt_len for span in spans]),
        request_ids=tuple([span.request_id for span in spans]),
        num_cached_tokens_per_seq=tuple([span.start for span in spans]),
        block_tables=tuple([block_table(span.request_id) for span in spans]),
        num_contexts=sum(span.kind is RowKind.CONTEXT for span in spans),
        segments=_segments(spans, sources),
    )


def _segments(spans: Sequence[Span], sources: Sequence[TokenSource]) -> tuple[Segment, Segment, Segment]:
    order = [TokenSource.HOST, TokenSource.DEVICE, TokenSource.ZERO]
    ranks = [order.index(source) for source in sources]
    assert ranks == sorted(ranks), f"rows out of order: {[s.value for s in sources]}"
    rows = [sum(n.num_rows for n, s in zip(spans, sources, strict=True) if s is kind) for kind in order]
    device_start, zero_start = rows[0], rows[0] + rows[1]
    return (
        Segment(TokenSource.HOST, 0, device_start),
        Segment(TokenSource.DEVICE, device_start, zero_start),
        Segment(TokenSource.ZERO, zero_start, zero_start + rows[2]),
    )

"""Freeze: the only place that copies engine records into snapshot views.

Every function takes a record inside ``Probe.emit`` and returns plain values that stay true afterwards. In light mode
only host numbers are read; the functions that read the device have ``values`` in their name and are called in full
mode alone.

Does not: keep anything, compute provenance or time (``recorder.py``), or change what it reads.
Source: the probe's contract (``engine/probe.py``): a value may be read only inside ``emit``.
"""

import dataclasses
import functools
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from engine.attention.interface import AttentionMetadata
from engine.cuda_graphs.select import Condition, Selection
from engine.inputs.host_inputs import HostInputs, TokenSource
from engine.inputs.records import CheckedItem, RunEvent
from engine.inputs.steady import SteadyRows
from engine.py_executor import SampledTokens, StepCommit
from engine.resources import Reservation
from engine.scheduled import Deferral, PaddedBatch, ScheduledRequests, Span
from lab.ledger import CopyView, LedgerView
from lab.ledger_watch import short_id
from lab.snapshot import (
    ROW_KINDS,
    ROW_SOURCES,
    UNKNOWN,
    BudgetView,
    CheckView,
    ConditionView,
    DeferralView,
    GraphView,
    IntArray,
    MetadataView,
    OutcomeView,
    PathView,
    ReservationView,
    RowsView,
    ScheduleView,
    SpanView,
)

_KIND_CODES = {kind: code for code, kind in enumerate(ROW_KINDS)}
_PROMPT, _PREVIOUS, _ZERO, _HOST, _DRAFT = range(len(ROW_SOURCES))


def freeze_deferrals(deferrals: Sequence[Deferral]) -> tuple[DeferralView, ...]:
    """Copy who was held back, and why."""
    return tuple([DeferralView(d.request_id, d.reason.value, d.needed, d.available) for d in deferrals])


def freeze_schedule(
    scheduled: ScheduledRequests, deferrals: tuple[DeferralView, ...], promoted: tuple[int, ...] = ()
) -> ScheduleView:
    """Copy the scheduler's answer; its deferrals are copied apart, since those of a long queue seldom change."""
    budget = scheduled.budget
    return ScheduleView(
        spans=tuple([_freeze_span(span) for span in scheduled.spans]),
        paused=tuple([request.request_id for request in scheduled.paused_requests]),
        deferrals=deferrals,
        budget=BudgetView(
            budget.num_tokens,
            budget.max_num_tokens,
            budget.num_requests,
            budget.max_batch_size,
            budget.num_free_blocks,
        ),
        promoted=promoted,
        draft_len=scheduled.draft_len,
    )


def _freeze_span(span: Span) -> SpanView:
    return SpanView(span.request_id, span.kind.value, span.start, span.num_rows, span.num_logit_rows, span.draft_tokens)


def fitted_again(asked: ScheduleView, ran: ScheduleView) -> ScheduleView:
    """Return what ran, with the spans that had been scheduled otherwise before the cache was asked."""
    if asked.spans == ran.spans:
        return ran
    kept = set(ran.spans)
    return dataclasses.replace(ran, asked=tuple([span for span in asked.spans if span not in kept]))


def freeze_reservation(granted: Reservation, ledger: LedgerView | None) -> ReservationView:
    """Copy what the managers granted. ledger: what changed in it, if somebody looked."""
    copies = tuple([CopyView(c.kind.value, c.source, c.target, c.num_tokens) for c in granted.block_copies])
    return ReservationView(granted.credits, granted.slots, granted.new_blocks, granted.num_free_blocks, copies, ledger)


def freeze_path(selection: Selection) -> PathView:
    """Copy the checklist and the choice."""
    return PathView(
        key=None if selection.key is None else str(selection.key),
        reason=None if selection.reason is None else selection.reason.value,
        bucket=selection.bucket,
        num_requests=selection.num_requests,
        num_padding=selection.num_padding,
        conditions=_freeze_conditions(selection.conditions),
    )


@functools.lru_cache(maxsize=64)
def _freeze_conditions(conditions: tuple[Condition, ...]) -> tuple[ConditionView, ...]:
    """Copy a checklist; equal ones share one copy, since most steps of a run have the same."""
    return tuple([ConditionView(c.reason.value, c.passed, c.needed, c.got) for c in conditions])


def spans_by_request(batch: PaddedBatch) -> dict[int, Span]:
    """Index the spans of a step; a dummy that stands in several spans appears once."""
    return {span.request_id: span for span in batch.spans}


def freeze_packed(packed: HostInputs | SteadyRows, spans: Mapping[int, Span]) -> RowsView:
    """Copy the flat layout, of a full step or of one that was derived."""
    return _freeze_steady(packed, spans) if isinstance(packed, SteadyRows) else freeze_rows(packed, spans)


def _freeze_steady(steady: SteadyRows, spans: Mapping[int, Span]) -> RowsView:
    """Lay out a derived step: nothing was packed, so the rows are told from the spans."""
    rows = [spans[request_id] for request_id in steady.request_ids]
    tokens = [s.request.token_range(s.start, s.end)[0] if s.start < s.request.num_tokens else UNKNOWN for s in rows]
    slots = [UNKNOWN if s.request.py_batch_idx is None else s.request.py_batch_idx for s in rows]
    return RowsView(
        request_ids=_ints([short_id(i) for i in steady.request_ids]),
        kinds=np.array([_KIND_CODES[s.kind.value] for s in rows], np.uint8),
        token_ids=_ints(tokens),
        positions=_ints([s.start for s in rows]),
        sources=np.full(len(rows), _PREVIOUS, np.uint8),
        source_slots=_ints(slots),
        gather_ids=_ints(range(len(rows))),
    )


def freeze_rows(host: HostInputs, spans: Mapping[int, Span]) -> RowsView:
    """Copy the flat layout.

    The token of a row that the device gathers is taken from the request's own host list, where the same sample was
    appended at the last commit; it is UNKNOWN when the host hasn't got it yet.
    """
    lengths = host.sequence_lengths
    codes, tokens, sources, slots = _row_columns(host, spans)
    return RowsView(
        request_ids=np.repeat(_ints([short_id(i) for i in host.request_ids]), lengths),
        kinds=np.repeat(np.array(codes, np.uint8), lengths),
        token_ids=_ints(tokens),
        positions=_ints(host.position_ids),
        sources=np.array(sources, np.uint8),
        source_slots=_ints(slots),
        gather_ids=_ints(host.gather_ids),
    )


def _row_columns(host: HostInputs, spans: Mapping[int, Span]) -> tuple[list[int], list[int], list[int], list[int]]:
    codes: list[int] = []
    gathered = iter(host.previous_batch_indices)  # one for each sequence whose newest token is on the device
    tokens = list(host.input_ids)
    sources: list[int] = []
    slots: list[int] = []
    device = next(segment for segment in host.segments if segment.source is TokenSource.DEVICE)
    for request_id, count in zip(host.request_ids, host.sequence_lengths, strict=True):
        span = spans[request_id]
        codes.append(_KIND_CODES[span.kind.value])
        row = len(sources)
        if row < device.start:
            prompt_rows = max(0, min(count, span.request.py_prompt_len - span.start))
            drafts = len(span.draft_tokens)
            sources += [_PROMPT] * prompt_rows + [_HOST] * (count - prompt_rows - drafts) + [_DRAFT] * drafts
            slots += [UNKNOWN] * count
        elif row < device.end:
            known = list(span.request.token_range(span.start, span.start + count))
            tokens += known + [UNKNOWN] * (count - len(known))
            sources += [_PREVIOUS] * count
            slots.append(next(gathered))
            slots += [UNKNOWN] * (count - 1)
        else:
            tokens += [0] * count
            sources += [_ZERO] * count
            slots += [UNKNOWN] * count
    return codes, tokens, sources, slots


def freeze_metadata(metadata: AttentionMetadata, spans: Mapping[int, Span]) -> MetadataView:
    """Copy the host numbers of the step last prepared; the device tensors are read by ``tensor_values``."""
    step = metadata.step
    assert step is not None, "METADATA was emitted before prepare"
    slots = [spans[request_id].request.py_seq_slot for request_id in step.request_ids]
    return MetadataView(
        object_id=id(metadata),
        backend=type(metadata).__name__,
        request_ids=_ints([short_id(i) for i in step.request_ids]),
        seq_lens=_ints(step.seq_lens),
        cached_lens=_ints(step.kv_cache_params.num_cached_tokens_per_seq),
        kv_lens=_ints(step.kv_lens),
        prompt_lens=_ints(step.prompt_lens),
        seq_slots=_ints([UNKNOWN if slot is None else slot for slot in slots]),
        block_tables=step.block_tables,
        num_contexts=step.num_contexts,
        num_tokens=step.num_tokens,
        padded_num_tokens=step.padded_num_tokens,
    )


def freeze_event(event: RunEvent) -> GraphView:
    """Copy how the forward ran; its flight is known only when the step is final."""
    return GraphView(
        path=event.path.value,
        simulated=event.simulated,
        key=event.key,
        pool_bytes=event.pool_bytes,
        steady="" if event.steady_refusal is None else event.steady_refusal.value,
        check=() if event.check is None else _freeze_check(event.check.items),
    )


@functools.lru_cache(maxsize=64)
def _freeze_check(items: tuple[CheckedItem, ...]) -> tuple[CheckView, ...]:
    """Copy a replay check; each key's passed check is the same at every replay, and shares one copy."""
    return tuple([CheckView(item.name, item.expected, item.got, item.passed) for item in items])


def freeze_outcome(
    sampled: SampledTokens, commit: StepCommit, ledger: LedgerView | None, kept: Mapping[int, int]
) -> OutcomeView:
    """Copy the samples and what became final. ledger: what that changed, if somebody looked.

    kept: tokens of each verify row that its request took; one that ends takes none behind its end.
    """
    left = dict(kept)
    tokens: list[tuple[int, int]] = []
    for request_id, token in sampled.token_ids:
        if left.get(request_id, 1) > 0:
            tokens.append((request_id, token))
        if request_id in left:
            left[request_id] -= 1
    return OutcomeView(
        tokens=tuple(tokens),
        finished=commit.finished,
        continued=commit.continued,
        freed=commit.freed,
        new_text=commit.new_text,
        paused=commit.paused,
        num_free_blocks=commit.num_free_blocks,
        accepted=sampled.num_accepted,
        ledger=ledger,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class FixedBuffers:
    """The tensors that every step overwrites, by name: the decoder's input buffers and the graphs' statics.

    static: of the decode graphs. prefill: of the prefill chains, none without any.
    """

    persistent: Mapping[str, torch.Tensor]
    static: Mapping[str, torch.Tensor]
    prefill: Mapping[str, torch.Tensor] = dataclasses.field(default_factory=dict[str, torch.Tensor])


@dataclasses.dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor without its address and contents. capacity: elements, or rows of a two-dimensional tensor."""

    capacity: int
    dtype: str


def tensor_facts(tensor: torch.Tensor) -> TensorFacts:
    """Read a tensor's handle; no device access. A view that is cut short reports its storage's capacity."""
    capacity = tensor.untyped_storage().nbytes() // tensor.element_size()
    if tensor.ndim == 2:
        capacity //= tensor.shape[1]
    return TensorFacts(capacity, str(tensor.dtype).removeprefix("torch."))


def tensor_values(
    tensor: torch.Tensor, num_rows: int, num_columns: int | None = None
) -> np.ndarray[Any, np.dtype[np.generic]]:
    """Read rows [0, num_rows), of a matrix columns [0, num_columns). It waits for the device: full mode only."""
    part = tensor[:num_rows, :num_columns] if tensor.ndim == 2 else tensor.reshape(-1)[:num_rows]
    if part.dtype is torch.bfloat16:
        part = part.float()
    return part.detach().to("cpu", copy=True).numpy()


def versions() -> dict[str, str]:
    """Name the software that a run depends on."""
    found = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    try:
        found["stepscope"] = importlib.metadata.version("stepscope")
    except importlib.metadata.PackageNotFoundError:
        found["stepscope"] = "not installed"
    return found


def _ints(values: Sequence[int] | range | IntArray) -> IntArray:
    return np.array(values, np.int32)

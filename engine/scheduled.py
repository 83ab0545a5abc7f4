"""What one step runs: frozen records, made by the scheduler and only read below it.

A request's part of a step is three integers: rows (tokens computed), logit rows wanted, sequences held.
Prefill: n rows, 1 or 0 logit rows, 1 sequence. Decode: 1, 1, 1. Verify: 1 + K, 1 + K, 1. Layout, padding and
slicing read the integers and never ask for the mode.

Does not: decide who runs (``scheduler/``) or own blocks (``kv_cache/``).
"""

import dataclasses
import enum
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, overload

import numpy as np

from engine.llm_request import LlmRequest
from engine.reasons import DeferralReason


class RowKind(enum.StrEnum):
    """The kind of a row, as the lab draws it."""

    CONTEXT = "C"
    EXTEND = "E"
    GENERATION = "G"
    PADDING = "P"


# Short cuts for spans that are made by the hundred.
_GENERATION: Final = RowKind.GENERATION
_new_tuple: Final = tuple.__new__


class Span(NamedTuple):
    """One request's rows in one step; a tuple with names, since a step makes hundreds and dataclasses cost thrice that.

    start: position of its first row = tokens already in its KV cache before the step (num_cached_tokens).
    draft_tokens: of a verify row, what rows 1 to K are; as long as K, zeros where the caller's guess has ended.
    """

    request: LlmRequest
    kind: RowKind
    start: int
    num_rows: int
    num_logit_rows: int
    num_sequences: int = 1
    draft_tokens: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        """Position after its last row; the KV length after the step."""
        return self.start + self.num_rows

    @property
    def kv_end(self) -> int:
        """Length of KV that the step needs: drafts behind the request's last position are computed for nothing."""
        end = self.start + self.num_rows
        return min(end, self.request.max_total_tokens - 1) if self.draft_tokens else end

    @property
    def request_id(self) -> int:
        """The request's id."""
        return self.request.request_id


def context_span(request: LlmRequest, chunk_size: int) -> Span:
    """Lay the next ``chunk_size`` prompt tokens as rows; the last chunk wants one logit row."""
    start = request.context_current_position
    is_last = start + chunk_size == request.py_prompt_len
    return Span(request, RowKind.CONTEXT, start, chunk_size, 1 if is_last else 0)


def generation_span(request: LlmRequest) -> Span:
    """One decode row, at the position of the request's newest token, which may still be on the device."""
    start = len(request.spec.prompt_token_ids) + len(request.generated) - 1 + request.num_in_flight
    return _new_tuple(Span, (request, _GENERATION, start, 1, 1, 1, ()))


def verify_span(request: LlmRequest, draft_len: int) -> Span:
    """One row for the newest token, and one for each of the next ``draft_len`` drafts of the caller's guess."""
    newest = request.num_generated + request.num_in_flight
    drafts = request.spec.draft_tokens[newest : newest + draft_len]
    drafts += (0,) * (draft_len - len(drafts))
    rows = 1 + draft_len
    return Span(request, RowKind.EXTEND, request.num_tokens - 1 + request.num_in_flight, rows, rows, 1, drafts)


class GenerationSpans(Sequence[Span]):
    """The generation spans of a step, made when somebody looks, and then once: most steps nobody does.

    Shapes: starts [rows] int64, the positions of the rows.
    """

    __slots__ = ("_made", "requests", "starts")

    def __init__(self, requests: tuple[LlmRequest, ...], starts: np.ndarray) -> None:
        """Hold the rows; what the requests do later changes nothing here."""
        self.requests = requests
        self.starts = starts
        self._made: tuple[Span, ...] | None = None

    @overload
    def __getitem__(self, index: int) -> Span: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Span, ...]: ...

    def __getitem__(self, index: int | slice) -> Span | tuple[Span, ...]:
        """Make one span, or some."""
        if isinstance(index, slice):
            return tuple([self[at] for at in range(*index.indices(len(self)))])
        return Span(self.requests[index], _GENERATION, int(self.starts[index]), 1, 1)

    def __iter__(self) -> Iterator[Span]:
        """Make all spans; the second reader finds those of the first."""
        if self._made is None:
            rows, make = zip(self.requests, self.starts.tolist(), strict=True), _new_tuple
            self._made = tuple([make(Span, (request, _GENERATION, start, 1, 1, 1, ())) for request, start in rows])
        return iter(self._made)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.requests)

    def __eq__(self, other: object) -> bool:
        """Compare as the tuple of spans that it stands for."""
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Hash as the tuple."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Show the spans."""
        return repr(tuple(self))


def generation_spans(requests: Sequence[LlmRequest]) -> GenerationSpans:
    """Lay out one decode row for each request, as ``generation_span`` does."""
    starts = [len(r.spec.prompt_token_ids) + len(r.generated) + r.num_in_flight - 1 for r in requests]
    return GenerationSpans(tuple(requests), np.array(starts, dtype=np.int64))


@dataclasses.dataclass(frozen=True, slots=True)
class Deferral:
    """A live request that got nothing, or less than it could use, with the numbers behind the reason."""

    request_id: int
    reason: DeferralReason
    needed: int
    available: int


@dataclasses.dataclass(frozen=True, slots=True)
class BudgetUse:
    """What the step spends of its budgets. Units: rows, requests, free blocks after admission."""

    num_tokens: int
    max_num_tokens: int
    num_requests: int
    max_batch_size: int
    num_free_blocks: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ScheduledRequests:
    """The scheduler's answer for one step.

    Order: contexts (unfinished chunks first, then last chunks), then generations; each in arrival order, except
    that generations without a previous sample on the device come first. draft_len: K, when the generations are verify
    rows; then all of them are.
    """

    context_requests: tuple[Span, ...]
    generation_requests: Sequence[Span]
    paused_requests: tuple[LlmRequest, ...]
    deferrals: Sequence[Deferral]
    budget: BudgetUse
    draft_len: int = 0

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every span in row order."""
        return (*self.context_requests, *self.generation_requests)

    @property
    def generating(self) -> tuple[LlmRequest, ...]:
        """The requests of the generation rows, in row order; the same tuple while a batch repeats."""
        rows = self.generation_requests
        return rows.requests if isinstance(rows, GenerationSpans) else tuple([span.request for span in rows])

    @property
    def sampled_requests(self) -> tuple[LlmRequest, ...]:
        """The requests that get a sample from this step, in the order of their logit rows."""
        if not self.context_requests:
            return self.generating
        return (*[span.request for span in self.context_requests if span.num_logit_rows], *self.generating)

    @property
    def num_tokens(self) -> int:
        """Rows of the step, before padding."""
        contexts, generations = self.context_requests, self.generation_requests
        return sum([span.num_rows for span in contexts]) + len(generations) * (1 + self.draft_len)

    @property
    def num_requests(self) -> int:
        """Requests of the step, before padding."""
        return len(self.context_requests) + len(self.generation_requests)


@dataclasses.dataclass(frozen=True, slots=True)
class PaddedBatch:
    """A step's spans with the dummies that fill its bucket.

    num_padding counts dummy *requests*; the same dummy object stands in each padding span, so all of them
    share one block and one slot, and nobody reads what they write. ``spans`` includes them, last.
    ``promoted_request_ids`` are one-token contexts laid out as decode rows.
    """

    scheduled: ScheduledRequests
    spans: Sequence[Span]
    num_padding: int = 0
    promoted_request_ids: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Rows of the padded step."""
        return sum(span.num_rows for span in self.spans)

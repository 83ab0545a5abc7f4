"""Recorder: a probe that turns the ten records of a step into one snapshot.

It follows three things that no single record holds: which step last wrote each row of each buffer, how long the host
took between two stages, and which requests have arrived. Light mode reads host records only; full mode also reads
buffer contents from the device, which waits for it, so its times are not the engine's own.

Does not: attach itself (``session.py``), copy records (``freeze.py``), or change the run.
Source: the age of every buffer row answers what a stale tail hides; no viewer that we know shows it.
"""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch

from engine.attention.interface import AttentionMetadata, TensorWrite
from engine.cuda_graphs.select import Selection
from engine.errors import ConfigError
from engine.fields import integer, shown
from engine.inputs.host_inputs import HostInputs
from engine.inputs.records import PreparedInputs, RunEvent
from engine.inputs.steady import SteadyRows
from engine.llm_request import LlmRequest
from engine.probe import Stage
from engine.py_executor import SampledTokens, StepCommit
from engine.reasons import PathKind
from engine.resources import Reservation
from engine.scheduled import PaddedBatch, ScheduledRequests, Span
from lab import freeze
from lab.snapshot import (
    ROW_SOURCES,
    SNAPSHOT_VERSION,
    STAGES,
    BufferView,
    OriginView,
    RowsView,
    StepSnapshot,
    WriteView,
)
from lab.trace import RequestRecord, Trace, TraceHeader

MAX_STEPS: Final = 10_000
MODES: Final = ("light", "full")
_PREPARED_BUFFERS: Final = ("input_ids", "position_ids", "gather_ids", "seq_slots")
BEFORE: Final = -1  # a write from before the first recorded step
_FROM_PREVIOUS_SAMPLE: Final = ROW_SOURCES.index("previous_sample")
OPEN_STEPS: Final = 2  # the overlap loop starts a step before the one before it is committed

Origins = tuple[OriginView, ...]


def overwrite(origins: Origins, write: WriteView, step: int) -> Origins:
    """Return the origins after one more write. Order: disjoint and ascending, before and after."""
    if write.end <= write.start:
        return origins
    fresh = OriginView(write.start, write.end, step, write.writer)
    if len(origins) == 1 and origins[0].start == write.start and origins[0].end == write.end:
        return (fresh,)
    kept: list[OriginView] = []
    for old in origins:
        if old.start < write.start:
            kept.append(OriginView(old.start, min(old.end, write.start), old.step, old.writer))
        if old.end > write.end:
            kept.append(OriginView(max(old.start, write.end), old.end, old.step, old.writer))
    kept.append(fresh)
    kept.sort(key=lambda origin: origin.start)
    return tuple(kept)


@dataclasses.dataclass(slots=True)
class _OpenStep:
    """What has come of a step that isn't committed yet."""

    host_us: np.ndarray
    parts: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    spans: Mapping[int, Span] = dataclasses.field(default_factory=dict[int, Span])
    num_rows: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What a recorder has seen so far, for the trace's header. token_ids: every id in a prompt or sampled."""

    mode: str
    requests: tuple[RequestRecord, ...]
    token_ids: frozenset[int]
    num_dropped: int


class _Ledger:
    """Who wrote each row of each buffer last, over all steps so far."""

    def __init__(self, fixed: freeze.FixedBuffers | None, *, reads_values: bool) -> None:
        self._fixed = fixed
        self._reads_values = reads_values
        self.origins: dict[tuple[int, str], Origins] = {}
        self._facts: dict[tuple[int, str], freeze.TensorFacts] = {}

    def persistent_views(self, rows: RowsView, prepared: PreparedInputs, step: int) -> list[BufferView]:
        """Return the input buffers after the copies of a step."""
        tensors = self._fixed.persistent if self._fixed else {n: getattr(prepared, n) for n in _PREPARED_BUFFERS}
        count, logits = prepared.num_tokens, len(rows.gather_ids)
        live = {"input_ids": count, "position_ids": count, "gather_ids": logits, "seq_slots": logits}
        live["previous_batch_indices"] = int((rows.sources == _FROM_PREVIOUS_SAMPLE).sum())
        writes: dict[str, list[WriteView]] = {}
        for write in prepared.writes:
            writes.setdefault(write.buffer, []).append(WriteView(write.start, write.end, write.writer.value))
        return [
            self._view(_Place("persistent", 0, name), tensor, live.get(name, 0), tuple(writes.get(name, ())), step=step)
            for name, tensor in tensors.items()
        ]

    def metadata_views(self, metadata: AttentionMetadata, step: int) -> list[BufferView]:
        """Return the metadata's own tensors and the rows of them that ``prepare`` wrote."""
        assert metadata.step is not None
        sequences, rows = metadata.step.num_seqs, metadata.step.num_tokens
        live = {"kv_lens": sequences, "seq_lens": sequences, "block_table": sequences}
        live |= {"row_to_sequence": rows, "query_start": sequences + 1}
        widest = max(map(len, metadata.step.block_tables), default=0)
        views: list[BufferView] = []
        for name, count in live.items():
            tensor: torch.Tensor = getattr(metadata, name)
            place = _Place("metadata", id(metadata), name)
            if (place.owner, name) not in self.origins:  # written at warm-up, or before the recorder came
                whole = WriteView(0, len(tensor), "host_copy")
                self.origins[place.owner, name] = overwrite((), whole, BEFORE)
            writes = tuple([_write_view(write) for write in metadata.written if write.name == name])
            views.append(self._view(place, tensor, count, writes, step=step, num_columns=widest))
        return views

    def static_views(self, event: RunEvent, num_rows: int, step: int) -> list[BufferView]:
        """Return the graphs' inputs; a replay begins by copying the step's rows into its own, an eager run does not."""
        views: list[BufferView] = []
        fixed = self._fixed or freeze.FixedBuffers({}, {})
        groups = ((1, PathKind.REPLAY, fixed.static), (2, PathKind.PREFILL_REPLAY, fixed.prefill))
        for owner, path, tensors in groups:
            live = num_rows if event.path is path else 0
            writes = (WriteView(0, live, "device_copy"),) if live else ()
            views += [self._view(_Place("static", owner, n), t, live, writes, step=step) for n, t in tensors.items()]
        return views

    def _view(
        self,
        place: "_Place",
        tensor: torch.Tensor,
        live_rows: int,
        writes: tuple[WriteView, ...],
        *,
        step: int,
        num_columns: int | None = None,
    ) -> BufferView:
        key = (place.owner, place.name)
        origins = self.origins.get(key, ())
        for write in writes:
            origins = overwrite(origins, write, step)
        self.origins[key] = origins
        facts = self._facts.get(key)
        if facts is None:
            facts = self._facts[key] = freeze.tensor_facts(tensor)
        return BufferView(
            name=place.name,
            layer=place.layer,
            address=tensor.data_ptr(),  # read anew every step: that it never changes is to be seen, not assumed
            capacity=facts.capacity,
            dtype=facts.dtype,
            live_rows=live_rows,
            writes=writes,
            origins=origins,
            values=freeze.tensor_values(tensor, live_rows, num_columns) if self._reads_values else None,
        )


def _write_view(write: TensorWrite) -> WriteView:
    return WriteView(write.start, write.end, "in_place_add" if write.in_place_add else "host_copy")


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Which buffer: its layer, its owner (the identity of a metadata object, else 0 or 1) and its name."""

    layer: str
    owner: int
    name: str


class Recorder:
    """Observe an engine and keep its last steps as snapshots.

    header: makes the trace's header, called by ``trace``. fixed: the engine's input buffers and statics; without them
    only the buffers in ``PreparedInputs`` are shown.
    """

    def __init__(
        self,
        header: Callable[["Seen"], TraceHeader],
        *,
        mode: str = "light",
        limit: int = MAX_STEPS,
        fixed: freeze.FixedBuffers | None = None,
    ) -> None:
        """Start with no steps. Raises: ConfigError for an unknown mode or a limit below 1."""
        if mode not in MODES:
            message = f"mode must be 'light' or 'full', got {shown(mode)}"
            raise ConfigError(message)
        limit = integer("limit", limit, refusal=ConfigError, low=1)
        self.mode = mode
        self._header = header
        self._ledger = _Ledger(fixed, reads_values=mode == "full")
        self._steps: collections.deque[StepSnapshot] = collections.deque(maxlen=limit)
        self._num_recorded = 0
        self._open: dict[int, _OpenStep] = {}
        self._arrivals: dict[int, tuple[int, LlmRequest]] = {}  # the step that first saw each request
        self._token_ids: set[int] = set()
        self._returned_ns: int | None = None
        self._handlers: tuple[Callable[[_OpenStep, int, Any], None], ...] = (
            self._on_scheduled,
            self._on_reserved,
            self._on_padded,
            self._on_chosen,
            self._on_packed,
            self._on_copied,
            self._on_metadata,
            self._on_ran,
            self._on_sampled,
            self._on_committed,
        )

    @property
    def steps(self) -> tuple[StepSnapshot, ...]:
        """The snapshots kept so far, oldest first."""
        return tuple(self._steps)

    @property
    def num_dropped(self) -> int:
        """Steps that the ring let go."""
        return self._num_recorded - len(self._steps)

    @property
    def trace(self) -> Trace:
        """The run so far as a trace; a later step does not change it."""
        requests = tuple(_request_record(step, request) for step, request in self._arrivals.values())
        seen = Seen(self.mode, requests, frozenset(self._token_ids), self.num_dropped)
        return Trace(self._header(seen), self.steps)

    def mark(self) -> None:
        """Start the clock of the next stage now, so that idle time before a step is not counted."""
        self._returned_ns = time.perf_counter_ns()

    def emit(self, stage: Stage, step: int, value: object) -> None:
        """Receive one stage; a step is complete at COMMITTED. Warm-up steps (below 0) are not kept."""
        entered = time.perf_counter_ns()
        if step >= 0:
            current = self._current(stage, step)
            if current is not None:
                if self._returned_ns is not None:
                    current.host_us[stage] = round((entered - self._returned_ns) / 1000, 1)
                self._handlers[stage](current, step, value)
        self._returned_ns = time.perf_counter_ns()

    def check(self) -> None:
        """Recompute the invariants: few open steps, origins disjoint and ascending."""
        assert len(self._open) <= OPEN_STEPS
        assert all(number >= 0 for number in self._open)
        for origins in self._ledger.origins.values():
            ends = [0, *(origin.end for origin in origins)]
            assert all(o.start >= end and o.end > o.start for o, end in zip(origins, ends, strict=False))

    def _current(self, stage: Stage, step: int) -> _OpenStep | None:
        """Return the step's open record; a new one at SCHEDULED, none for a step joined in its middle."""
        if stage is Stage.SCHEDULED:
            self._open.pop(step, None)  # a step that was rolled back begins again under the same number
            while len(self._open) >= OPEN_STEPS:
                del self._open[min(self._open)]
            self._open[step] = _OpenStep(np.full(len(STAGES), np.nan, np.float32))
        return self._open.get(step)

    def _on_scheduled(self, current: _OpenStep, step: int, value: ScheduledRequests) -> None:
        for span in value.spans:
            if span.request_id not in self._arrivals:
                self._arrivals[span.request_id] = (step, span.request)
                self._token_ids.update(span.request.spec.prompt_token_ids)
        current.parts["schedule"] = freeze.freeze_schedule(value)

    def _on_reserved(self, current: _OpenStep, step: int, value: Reservation) -> None:
        current.parts["reservation"] = freeze.freeze_reservation(value)

    def _on_padded(self, current: _OpenStep, step: int, value: PaddedBatch) -> None:
        current.spans = freeze.spans_by_request(value)
        if value.promoted_request_ids:
            current.parts["schedule"] = freeze.freeze_schedule(value.scheduled, value.promoted_request_ids)

    def _on_chosen(self, current: _OpenStep, step: int, value: Selection) -> None:
        current.parts["path"] = freeze.freeze_path(value)

    def _on_packed(self, current: _OpenStep, step: int, value: HostInputs | SteadyRows) -> None:
        current.parts["rows"] = freeze.freeze_packed(value, current.spans)

    def _on_copied(self, current: _OpenStep, step: int, value: PreparedInputs) -> None:
        current.num_rows = value.input_ids.shape[0]  # with the tail of a prefill bucket
        current.parts["buffers"] = self._ledger.persistent_views(current.parts["rows"], value, step)

    def _on_metadata(self, current: _OpenStep, step: int, value: AttentionMetadata) -> None:
        current.parts["metadata"] = freeze.freeze_metadata(value, current.spans)
        current.parts["buffers"] += self._ledger.metadata_views(value, step)

    def _on_ran(self, current: _OpenStep, step: int, value: RunEvent) -> None:
        current.parts["graph"] = freeze.freeze_event(value)
        current.parts["buffers"] += self._ledger.static_views(value, current.num_rows, step)

    def _on_sampled(self, current: _OpenStep, step: int, value: SampledTokens) -> None:
        current.parts["sampled"] = value
        self._token_ids.update([token for _, token in value.token_ids])

    def _on_committed(self, current: _OpenStep, step: int, value: StepCommit) -> None:
        del self._open[step]
        parts = current.parts
        outcome = freeze.freeze_outcome(parts["sampled"], value)
        self._steps.append(
            StepSnapshot(
                version=SNAPSHOT_VERSION,
                step=step,
                mode=self.mode,
                schedule=parts["schedule"],
                reservation=parts["reservation"],
                rows=parts["rows"],
                buffers=tuple(parts["buffers"]),
                metadata=parts["metadata"],
                path=parts["path"],
                graph=parts["graph"],
                outcome=outcome,
                host_us=current.host_us,
            )
        )
        self._num_recorded += 1


def _request_record(arrival_step: int, request: LlmRequest) -> RequestRecord:
    spec = request.spec
    return RequestRecord(
        request_id=spec.request_id,
        arrival_step=arrival_step,
        num_prompt_tokens=len(spec.prompt_token_ids),
        prompt_token_ids=tuple(spec.prompt_token_ids),
        prompt_text=None,
        params=dataclasses.asdict(spec.params),
    )

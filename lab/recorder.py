"""Recorder: a probe that turns the ten records of a step into one snapshot.

It follows what no single record holds: which step last wrote each row of each buffer, what changed in the KV ledger,
how long the host took between two stages, in which order steps were handed over and read, and which requests have
arrived. Light mode reads host records only; full mode also reads buffer contents from the device, which waits for it,
so its times are not the engine's own.

With overlap two steps are open at once. A token that was on the device when its row was laid out is filled in when the
host has read it, and stays marked as late.

Does not: attach itself (``session.py``), copy records (``freeze.py``), or change the run. Source: own.
"""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from engine.attention.interface import AttentionMetadata
from engine.cuda_graphs.select import Selection
from engine.errors import ConfigError
from engine.fields import integer, shown
from engine.inputs.host_inputs import HostInputs
from engine.inputs.records import PreparedInputs, RunEvent
from engine.inputs.steady import SteadyRows
from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest
from engine.probe import Stage
from engine.py_executor import SampledTokens, StepCommit
from engine.resources import Reservation
from engine.scheduled import Deferral, PaddedBatch, ScheduledRequests, Span
from lab import freeze
from lab.buffer_watch import BufferWatch
from lab.device_clock import DeviceClock
from lab.flight import FlightView
from lab.ledger import LedgerState, LedgerView, compose
from lab.ledger_history import with_ledger_before
from lab.ledger_watch import LedgerWatch
from lab.snapshot import ROW_SOURCES, SNAPSHOT_VERSION, STAGES, UNKNOWN, DeferralView, RowsView, StepSnapshot
from lab.trace import RequestRecord, Trace, TraceHeader

MAX_STEPS: Final = 10_000
MODES: Final = ("light", "full")
OPEN_STEPS: Final = 2  # the overlap loop starts a step before the one before it is committed
_FROM_PREVIOUS_SAMPLE: Final = ROW_SOURCES.index("previous_sample")


@dataclasses.dataclass(slots=True)
class _OpenStep:
    """What has come of a step that isn't committed yet. order: the place of each stage among all that came."""

    host_us: np.ndarray
    unread: tuple[int, ...]
    order: list[int] = dataclasses.field(default_factory=lambda: [0] * len(STAGES))
    parts: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    spans: Mapping[int, Span] = dataclasses.field(default_factory=dict[int, Span])
    num_rows: int = 0
    late: tuple[tuple[int, int, int], ...] = ()

    @property
    def is_unread(self) -> bool:
        """Whether its forward was handed over, and its samples were not read."""
        return self.order[Stage.RAN] > 0 and not self.order[Stage.SAMPLED]


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What a recorder has seen so far, for the trace's header. token_ids: every id in a prompt, draft or sample."""

    mode: str
    requests: tuple[RequestRecord, ...]
    token_ids: frozenset[int]
    num_dropped: int


@dataclasses.dataclass(frozen=True, slots=True)
class Sights:
    """What a recorder may look at besides the records; without one of them, what it would show is left out.

    fixed: the engine's input buffers and statics. kv_cache: whose ledger is followed. clock: of the device.
    """

    fixed: freeze.FixedBuffers | None = None
    kv_cache: KVCacheManager | None = None
    clock: DeviceClock | None = None


class Recorder:
    """Observe an engine and keep its last steps as snapshots.

    header: makes the trace's header, called by ``trace``.
    """

    def __init__(
        self,
        header: Callable[["Seen"], TraceHeader],
        *,
        mode: str = "light",
        limit: int = MAX_STEPS,
        sights: Sights = Sights(),
    ) -> None:
        """Start with no steps. Raises: ConfigError for an unknown mode or a limit below 1."""
        if mode not in MODES:
            message = f"mode must be 'light' or 'full', got {shown(mode)}"
            raise ConfigError(message)
        limit = integer("limit", limit, refusal=ConfigError, low=1)
        self.mode = mode
        self._header = header
        self._buffers = BufferWatch(sights.fixed, reads_values=mode == "full")
        self._watch = None if sights.kv_cache is None else LedgerWatch(sights.kv_cache)
        self._clock = sights.clock
        self._clock_start: Any = None
        self._steps: collections.deque[StepSnapshot] = collections.deque(maxlen=limit)
        self._dropped = LedgerState()  # after the steps that the ring let go
        self._undone: LedgerView | None = None  # changes of a step that was never committed
        self._num_recorded = self._num_emits = 0
        self._open: dict[int, _OpenStep] = {}
        self._arrivals: dict[int, tuple[int, LlmRequest]] = {}  # the step that first saw each request
        self._token_ids: set[int] = set()
        self._deferrals: tuple[Any, tuple[DeferralView, ...]] = (None, ())  # the last ones, and their copies
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
        """The snapshots kept so far, oldest first; the oldest has the ledger of those before it as its own change."""
        steps = tuple(self._steps)
        if not self.num_dropped or self._dropped.whole() is None:
            return steps
        return (with_ledger_before(steps[0], self._dropped), *steps[1:])

    @property
    def num_dropped(self) -> int:
        """Steps that the ring let go."""
        return self._num_recorded - len(self._steps)

    @property
    def last(self) -> StepSnapshot:
        """The newest snapshot."""
        return self._steps[-1]

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
                self._num_emits += 1
                current.order[stage] = self._num_emits
                if self._returned_ns is not None:
                    current.host_us[stage] = round((entered - self._returned_ns) / 1000, 1)
                self._handlers[stage](current, step, value)
        self._returned_ns = time.perf_counter_ns()

    def check(self) -> None:
        """Recompute the invariants: few open steps, origins disjoint and ascending, a ledger that adds up."""
        assert len(self._open) <= OPEN_STEPS
        assert all(number >= 0 for number in self._open)
        self._buffers.check()
        self._dropped.check()

    def _current(self, stage: Stage, step: int) -> _OpenStep | None:
        """Return the step's open record; a new one at SCHEDULED, none for a step joined in its middle."""
        if stage is Stage.SCHEDULED:
            self._give_up(step)  # a step that was rolled back begins again under the same number
            while len(self._open) >= OPEN_STEPS:
                self._give_up(min(self._open))
            unread = tuple([number for number, other in self._open.items() if other.is_unread])
            self._open[step] = _OpenStep(np.full(len(STAGES), np.nan, np.float32), unread)
        return self._open.get(step)

    def _give_up(self, step: int) -> None:
        """Forget a step that will not be committed; what changed in the ledger meanwhile is the next one's."""
        gone = self._open.pop(step, None)
        if gone is not None and "reservation" in gone.parts:
            self._undone = compose(self._undone, gone.parts["reservation"].ledger)

    def _ledger_changes(self) -> LedgerView | None:
        found = None if self._watch is None else self._watch.changes()
        if found is not None:
            self._token_ids.update(*[node.tokens for node in found.added])
        found, self._undone = compose(self._undone, found), None
        return found

    def _on_scheduled(self, current: _OpenStep, step: int, value: ScheduledRequests) -> None:
        for span in value.spans:
            if span.request_id not in self._arrivals:
                self._arrivals[span.request_id] = (step, span.request)
                self._token_ids.update(span.request.spec.prompt_token_ids, span.request.spec.draft_tokens)
        current.parts["asked"] = value
        current.parts["schedule"] = freeze.freeze_schedule(value, self._frozen_deferrals(value.deferrals))

    def _frozen_deferrals(self, deferrals: Sequence[Deferral]) -> tuple[DeferralView, ...]:
        if self._deferrals[0] is not deferrals:
            self._deferrals = (deferrals, freeze.freeze_deferrals(deferrals))
        return self._deferrals[1]

    def _on_reserved(self, current: _OpenStep, step: int, value: Reservation) -> None:
        current.parts["reservation"] = freeze.freeze_reservation(value, self._ledger_changes())

    def _on_padded(self, current: _OpenStep, step: int, value: PaddedBatch) -> None:
        current.spans = freeze.spans_by_request(value)
        ran, asked = value.scheduled, current.parts["schedule"]
        if ran is not current.parts["asked"] or value.promoted_request_ids:
            deferrals = self._frozen_deferrals(ran.deferrals)
            schedule = freeze.freeze_schedule(ran, deferrals, value.promoted_request_ids)
            current.parts["schedule"] = freeze.fitted_again(asked, schedule)

    def _on_chosen(self, current: _OpenStep, step: int, value: Selection) -> None:
        current.parts["path"] = freeze.freeze_path(value)

    def _on_packed(self, current: _OpenStep, step: int, value: HostInputs | SteadyRows) -> None:
        current.parts["rows"] = freeze.freeze_packed(value, current.spans)

    def _on_copied(self, current: _OpenStep, step: int, value: PreparedInputs) -> None:
        current.num_rows = value.input_ids.shape[0]  # with the tail of a prefill bucket
        current.parts["buffers"] = self._buffers.persistent_views(current.parts["rows"], value, step)

    def _on_metadata(self, current: _OpenStep, step: int, value: AttentionMetadata) -> None:
        current.parts["metadata"] = freeze.freeze_metadata(value, current.spans)
        current.parts["buffers"] += self._buffers.metadata_views(value, step)
        if self._clock is not None:
            current.parts["began"] = self._clock.mark()
            self._clock_start = current.parts["began"] if self._clock_start is None else self._clock_start

    def _on_ran(self, current: _OpenStep, step: int, value: RunEvent) -> None:
        if self._clock is not None:
            current.parts["ended"] = self._clock.mark()
        current.parts["graph"] = freeze.freeze_event(value)
        current.parts["buffers"] += self._buffers.static_views(value, current.num_rows, step)

    def _on_sampled(self, current: _OpenStep, step: int, value: SampledTokens) -> None:
        current.parts["sampled"] = value
        current.parts["known"] = {i: self._num_generated(i) for i, _ in value.num_accepted}
        self._token_ids.update([token for _, token in value.token_ids])
        newest = dict(value.token_ids)  # of a verify row the last one
        for number, other in self._open.items():
            if number > step and "rows" in other.parts:
                other.late += fill_in(other.parts["rows"], newest, step)

    def _num_generated(self, request_id: int) -> int:
        return self._arrivals[request_id][1].num_generated

    def _on_committed(self, current: _OpenStep, step: int, value: StepCommit) -> None:
        for number in [number for number in self._open if number < step]:
            self._give_up(number)  # it failed while its samples were read
        del self._open[step]
        parts = current.parts
        ledger = None if self._open else self._ledger_changes()
        kept = {i: self._num_generated(i) - known for i, known in parts["known"].items()}
        flight = FlightView(tuple(current.order), current.unread, current.late, self._device_us(parts))
        if len(self._steps) == self._steps.maxlen:
            self._dropped.apply(self._steps[0].reservation.ledger)
            self._dropped.apply(self._steps[0].outcome.ledger)
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
                graph=dataclasses.replace(parts["graph"], flight=flight),
                outcome=freeze.freeze_outcome(parts["sampled"], value, ledger, kept),
                host_us=current.host_us,
            )
        )
        self._num_recorded += 1

    def _device_us(self, parts: Mapping[str, Any]) -> tuple[int, int] | None:
        if self._clock is None:
            return None
        begin, end = (self._clock.microseconds(self._clock_start, parts[name]) for name in ("began", "ended"))
        return begin, end


def fill_in(rows: RowsView, newest: Mapping[int, int], step: int) -> tuple[tuple[int, int, int], ...]:
    """Write sampled tokens into rows that were laid out before the host had them; return those runs, with ``step``."""
    late: list[tuple[int, int, int]] = []
    waiting = np.flatnonzero((rows.token_ids == UNKNOWN) & (rows.source_slots >= 0))
    for row in waiting.tolist():
        token = newest.get(int(rows.request_ids[row]))
        if token is None:
            continue
        rows.token_ids[row] = token
        if late and late[-1][1] == row:
            late[-1] = (late[-1][0], row + 1, step)
        else:
            late.append((row, row + 1, step))
    return tuple(late)


def _request_record(arrival_step: int, request: LlmRequest) -> RequestRecord:
    spec = request.spec
    return RequestRecord(
        request_id=spec.request_id,
        arrival_step=arrival_step,
        num_prompt_tokens=len(spec.prompt_token_ids),
        prompt_token_ids=tuple(spec.prompt_token_ids),
        prompt_text=None,
        params=dataclasses.asdict(spec.params),
        draft_tokens=spec.draft_tokens,
        cache_salt=spec.cache_salt,
    )

"""StepSnapshot: one step of the engine, frozen, in plain numbers that outlive the engine.

A tree of small frozen records. Per-row and per-sequence facts are numpy arrays (one column a fact), everything else is
str, int, bool or a tuple. Codes such as a row's kind are indices into the tuples of names below.

Does not: read the engine (``freeze.py`` does), compute who wrote a buffer row (``recorder.py``), encode itself
(``store.py``) or word anything (``explain.py``).
Source: the article's seven preparation steps, one view for each, plus the age of every buffer row.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lab.flight import FlightView
from lab.ledger import CopyView, LedgerView

SNAPSHOT_VERSIONS: Final = (1, 2)  # that can be read
SNAPSHOT_VERSION: Final = SNAPSHOT_VERSIONS[-1]
SINCE_2: Final[Mapping[str, Any]] = {"since": 2}  # a field that version 1 does not have; it has a default

STAGES: Final = (
    "SCHEDULED", "RESERVED", "PADDED", "GRAPH_CHOSEN", "PACKED", "COPIED", "METADATA", "RAN", "SAMPLED", "COMMITTED",
)  # fmt: skip
ROW_KINDS: Final = ("C", "E", "G", "P")  # context, extend, generation, padding
ROW_SOURCES: Final = ("prompt", "previous_sample", "zero_fill", "host", "draft")  # where a row's token id came from
# who wrote a buffer row last; device_copy fills a graph's statics from the persistent buffers
WRITERS: Final = ("never", "host_copy", "device_gather", "in_place_add", "zero_fill", "device_copy")
LAYERS: Final = ("persistent", "static", "metadata")  # the three layers of storage, by lifetime
UNKNOWN: Final = -1  # a token id or slot that this mode cannot know

IntArray = npt.NDArray[np.int32]
CodeArray = npt.NDArray[np.uint8]
FloatArray = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True)
class SpanView:
    """One request's ``num_rows`` rows from position ``start``; kind is one of ROW_KINDS. drafts: of a verify row."""

    request_id: int
    kind: str
    start: int
    num_rows: int
    num_logit_rows: int
    drafts: tuple[int, ...] = dataclasses.field(default=(), metadata=SINCE_2)


@dataclasses.dataclass(frozen=True, slots=True)
class DeferralView:
    """A live request that got nothing, or less than it could use; reason names a ``DeferralReason``."""

    request_id: int
    reason: str
    needed: int
    available: int


@dataclasses.dataclass(frozen=True, slots=True)
class BudgetView:
    """What the step spent of its budgets. Units: rows, requests, free blocks after admission (None: unknown)."""

    num_tokens: int
    max_num_tokens: int
    num_requests: int
    max_batch_size: int
    num_free_blocks: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class ScheduleView:
    """The scheduler's answer, before padding, as it ran.

    Order: contexts, then generations. promoted: one-token contexts that run as decode rows if the step has a key.
    draft_len: K, of verify rows. asked: as scheduled at first, the spans that were fitted again after the claim.
    """

    spans: tuple[SpanView, ...]
    paused: tuple[int, ...]
    deferrals: tuple[DeferralView, ...]
    budget: BudgetView
    promoted: tuple[int, ...] = ()
    draft_len: int = dataclasses.field(default=0, metadata=SINCE_2)
    asked: tuple[SpanView, ...] = dataclasses.field(default=(), metadata=SINCE_2)


@dataclasses.dataclass(frozen=True, slots=True)
class ReservationView:
    """What the managers granted: prompt tokens found in the cache, sequence slots, block ids, free blocks left.

    copies: in the order in which they run. ledger: what changed up to here; None when nobody looked.
    """

    credits: tuple[tuple[int, int], ...]
    slots: tuple[tuple[int, int], ...]
    new_blocks: tuple[tuple[int, tuple[int, ...]], ...]
    num_free_blocks: int
    copies: tuple[CopyView, ...] = dataclasses.field(default=(), metadata=SINCE_2)
    ledger: LedgerView | None = dataclasses.field(default=None, metadata=SINCE_2)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RowsView:
    """The flat layout of the step, padding included.

    Shapes: request_ids, kinds (index into ROW_KINDS), token_ids, positions, sources (index into ROW_SOURCES),
    source_slots [N]; gather_ids [R]. token_ids is UNKNOWN where the value was on the device and never came to the
    host; source_slots is the sequence slot a previous sample was gathered from, else UNKNOWN.
    gather_ids are the rows whose hidden state reaches the LM head.
    """

    request_ids: IntArray
    kinds: CodeArray
    token_ids: IntArray
    positions: IntArray
    sources: CodeArray
    source_slots: IntArray
    gather_ids: IntArray

    @property
    def num_rows(self) -> int:
        """Rows of the step, padding included."""
        return len(self.request_ids)

    @property
    def num_padding_rows(self) -> int:
        """Rows that belong to padding dummies."""
        return int(np.count_nonzero(self.kinds == ROW_KINDS.index("P")))


@dataclasses.dataclass(frozen=True, slots=True)
class WriteView:
    """Rows [start, end) of a buffer that were written in this step; writer is one of WRITERS."""

    start: int
    end: int
    writer: str


@dataclasses.dataclass(frozen=True, slots=True)
class OriginView:
    """Rows [start, end) of a buffer were last written in ``step`` by ``writer`` (one of WRITERS)."""

    start: int
    end: int
    step: int
    writer: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class BufferView:
    """One tensor whose address never changes, as it stands after the step's preparation.

    layer: one of LAYERS. capacity: rows allocated. live_rows: rows [0, live_rows) that this step reads.
    writes: what this step wrote, in order. origins: disjoint and ascending, who wrote each row last and when; a row
    outside them was never written, a row below live_rows with an old step is stale. values: rows as they stand, full
    mode only.
    """

    name: str
    layer: str
    address: int
    capacity: int
    dtype: str
    live_rows: int
    writes: tuple[WriteView, ...]
    origins: tuple[OriginView, ...]
    values: npt.NDArray[np.generic] | None = None

    @property
    def num_known_rows(self) -> int:
        """Rows up to the last one ever written."""
        return self.origins[-1].end if self.origins else 0

    @property
    def writer_steps(self) -> IntArray:
        """The step that last wrote each row; -1 for never, or before the recording. Shapes: [num_known_rows]."""
        steps = np.full(self.num_known_rows, -1, np.int32)
        for origin in self.origins:
            steps[origin.start : origin.end] = origin.step
        return steps

    @property
    def writers(self) -> CodeArray:
        """Who last wrote each row, as an index into WRITERS. Shapes: [num_known_rows]."""
        codes = np.zeros(self.num_known_rows, np.uint8)
        for origin in self.origins:
            codes[origin.start : origin.end] = WRITERS.index(origin.writer)
        return codes

    def ages(self, step: int) -> IntArray:
        """Return the steps since each row was last written; -1 as for ``writer_steps``. Shapes: [num_known_rows]."""
        steps = self.writer_steps
        return np.where(steps < 0, -1, step - steps).astype(np.int32)

    def stale_rows(self, step: int) -> IntArray:
        """Return the rows that this step reads but did not write."""
        live = np.full(self.live_rows, -1, np.int32)
        known = self.writer_steps[: self.live_rows]
        live[: len(known)] = known
        return np.flatnonzero(live != step).astype(np.int32)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class MetadataView:
    """The attention metadata of the step, per sequence; padding dummies included.

    Shapes: request_ids, seq_lens (query rows), cached_lens, kv_lens, prompt_lens, seq_slots [S]. block_tables: block
    ids of each sequence (stored as deltas). object_id: identity of the metadata object, one per graph key.
    backend: name of its class. padded_num_tokens: None when no token padding happened.
    """

    object_id: int
    backend: str
    request_ids: IntArray
    seq_lens: IntArray
    cached_lens: IntArray
    kv_lens: IntArray
    prompt_lens: IntArray
    seq_slots: IntArray
    block_tables: tuple[tuple[int, ...], ...]
    num_contexts: int
    num_tokens: int
    padded_num_tokens: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class ConditionView:
    """One line of the graph checklist; passed is None when an earlier line had already failed."""

    reason: str
    passed: bool | None
    needed: str
    got: str


@dataclasses.dataclass(frozen=True, slots=True)
class PathView:
    """The decision graph or eager. key: text of the chosen key, None with a reason (``engine.reasons.FallOff``)."""

    key: str | None
    reason: str | None
    bucket: int | None
    num_requests: int
    num_padding: int
    conditions: tuple[ConditionView, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class CheckView:
    """One line of the check before a replay."""

    name: str
    expected: str
    got: str
    passed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class GraphView:
    """How the forward ran. path: eager, capture, replay or prefill_replay. simulated: the graph is the CPU tape.

    steady: "" when the step was derived on the device from the one before, else why not (``SteadyRefusal``). flight:
    when it was handed over. Units: bytes.
    """

    path: str
    simulated: bool
    key: str | None
    pool_bytes: int
    check: tuple[CheckView, ...] = ()
    steady: str = "NOTHING_RECORDED"
    flight: FlightView = dataclasses.field(default=FlightView(), metadata=SINCE_2)


@dataclasses.dataclass(frozen=True, slots=True)
class OutcomeView:
    """What the step gave.

    tokens: (request id, token id) sampled, of a verify row one for each draft accepted and the one behind, up to its
    end. accepted: (request id, drafts accepted). ledger: what the commit changed; None while another step was open.
    finished: (request id, reason). new_text: (request id, text that became showable), never a partial character.
    """

    tokens: tuple[tuple[int, int], ...]
    finished: tuple[tuple[int, str], ...]
    continued: tuple[int, ...]
    freed: tuple[int, ...]
    new_text: tuple[tuple[int, str], ...] = ()
    paused: tuple[int, ...] = ()
    num_free_blocks: int = UNKNOWN
    accepted: tuple[tuple[int, int], ...] = dataclasses.field(default=(), metadata=SINCE_2)
    ledger: LedgerView | None = dataclasses.field(default=None, metadata=SINCE_2)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StepSnapshot:
    """One committed step. mode: light (host records only) or full (buffer values read from the device).

    Units: host_us [10] microseconds of host time by stage (order of STAGES); NaN for a stage that did not come.
    """

    version: int
    step: int
    mode: str
    schedule: ScheduleView
    reservation: ReservationView
    rows: RowsView
    buffers: tuple[BufferView, ...]
    metadata: MetadataView
    path: PathView
    graph: GraphView
    outcome: OutcomeView
    host_us: FloatArray

    @property
    def num_tail_rows(self) -> int:
        """Rows at the end of a prefill bucket that belong to no sequence, not even a dummy's."""
        padded = self.metadata.padded_num_tokens
        return 0 if padded is None else padded - self.metadata.num_tokens

    @property
    def num_rows(self) -> int:
        """Rows that ran: the flat layout, which an imported step does not have, and the tail of a prefill bucket."""
        return self.metadata.num_tokens + self.num_tail_rows

    @property
    def num_padding_rows(self) -> int:
        """Rows that nobody reads: of padding dummies, and the tail of a prefill bucket."""
        return self.rows.num_padding_rows + self.num_tail_rows

    def buffer(self, name: str, layer: str = "persistent") -> BufferView | None:
        """Return the buffer of that name and layer, or None when the recorder did not see one."""
        return next((view for view in self.buffers if view.name == name and view.layer == layer), None)


def equal(left: object, right: object) -> bool:
    """Compare two snapshots, or parts of them, by value; NaN equals NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
    if dataclasses.is_dataclass(left) and not isinstance(left, type):
        return all(equal(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left))
    return left == right

"""StepLog: an observer of the null runner that keeps each step's numbers in columns and charges its virtual time.

It watches the runner alone, so the executor's loop runs as it does unobserved, and its host time is the real one. The
batch comes at PADDED, after scheduling, reuse and refit; the path and with it the cost at GRAPH_CHOSEN. A batch of
generations that repeats is looked at once.

Does not: keep records, requests or texts: a row is sixteen numbers, whatever the batch. Torch-free.
"""

import array
import dataclasses
import time
from collections.abc import Sequence
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from engine.cuda_graphs.select import Selection
from engine.llm_request import LlmRequest
from engine.probe import Stage
from engine.reasons import FallOff
from engine.scheduled import PaddedBatch, Span
from lab.replay.cost_model import CostModel

GRAPH, PREFILL, EAGER = range(3)  # the column "path"
PATH_NAMES: Final = ("graph", "prefill graph", "eager")
NO_REASON: Final = -1  # the column "reason" of a step on a graph; else the place in REASONS
REASONS: Final = tuple(FallOff)
COLUMNS: Final = (
    "step", "start_us", "cost_us", "requests", "contexts", "rows", "context_rows", "computed_rows", "padding",
    "path", "reason", "waiting", "paused", "free_blocks", "reused", "host_ns",
)  # fmt: skip

Columns = dict[str, npt.NDArray[np.int64]]


@dataclasses.dataclass(slots=True)
class Waits:
    """What the log notes of a live request. last_step: that ran it, or the one before its arrival."""

    last_step: int
    first_step: int = -1
    max_wait_steps: int = 0
    first_token_us: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Batch:
    """The generations of the newest step. kv_tokens: their lengths after it, added up."""

    requests: tuple[LlmRequest, ...] = ()
    step: int = -1
    kv_tokens: int = 0


class StepLog:
    """One row a step; ``num_live`` and ``now_us`` are set by whoever drives the replay.

    Units: microseconds of virtual time, nanoseconds of host time, rows, requests, blocks, tokens. free_blocks: before
    the step's own reservation.
    """

    def __init__(self, costs: CostModel) -> None:
        """Start without a step."""
        self._costs = costs
        self._columns = {name: array.array("q") for name in COLUMNS}
        self._numbers: dict[str, int] = {}  # of the step between its two records
        self._kv_tokens = 0
        self._first: list[int] = []  # requests that get their first token from it
        self._waits: dict[int, Waits] = {}  # by request
        self._begun: set[int] = set()  # requests with a part of their prompt computed
        self._batch = _Batch()
        self._own_ns = 0
        self._charged_us = 0.0
        self.num_live = 0
        self.now_us = 0.0
        self.max_wait_steps = 0

    def __len__(self) -> int:
        """Count the steps."""
        return len(self._columns["step"])

    @property
    def last_step(self) -> int:
        """The number of the newest step; -1 before the first."""
        return self._columns["step"][-1] if len(self) else -1

    def arrive(self, request_id: int) -> None:
        """Begin to count the steps that a request waits."""
        self._waits[request_id] = Waits(self.last_step)

    def leave(self, request_id: int) -> Waits:
        """End the count of a request that ended, and return it."""
        self._begun.discard(request_id)
        return self._waits.pop(request_id)

    def stop(self) -> None:
        """Count what the requests that are still here have waited so far."""
        self._note_runs()
        waits = [self.last_step - waits.last_step for waits in self._waits.values()]
        self.max_wait_steps = max(self.max_wait_steps, *waits, 0)

    def take_charge(self) -> float:
        """Return the cost of the steps since the last call."""
        charged, self._charged_us = self._charged_us, 0.0
        return charged

    def take_own_ns(self) -> int:
        """Return the nanoseconds that this log itself took since the last call."""
        own, self._own_ns = self._own_ns, 0
        return own

    def note_host_ns(self, nanoseconds: int) -> None:
        """Set the host time of the newest step."""
        if len(self):
            self._columns["host_ns"][-1] = nanoseconds

    def columns(self) -> Columns:
        """Return a copy of every column."""
        return {name: np.array(column, dtype=np.int64) for name, column in self._columns.items()}

    def emit(self, stage: Stage, step: int, value: object) -> None:
        """Read the two records."""
        began = time.perf_counter_ns()
        if stage is Stage.PADDED:
            self._see_batch(step, cast("PaddedBatch", value))
        elif stage is Stage.GRAPH_CHOSEN:
            self._see_path(cast("Selection", value))
        self._own_ns += time.perf_counter_ns() - began

    def _see_batch(self, step: int, padded: PaddedBatch) -> None:
        scheduled = padded.scheduled
        generating, contexts = scheduled.generating, scheduled.context_requests
        if generating is self._batch.requests and not scheduled.draft_len and self._batch.step == step - 1:
            kv_tokens = self._batch.kv_tokens + len(generating)  # the same rows, each one token further
        else:
            self._note_runs()
            kv_tokens = sum([span.end for span in scheduled.generation_requests])
            self._run(step, generating)
        self._batch = _Batch(generating, step, kv_tokens)
        self._kv_tokens = kv_tokens + sum([span.end for span in contexts])
        for request in scheduled.paused_requests:
            self._begun.discard(request.request_id)
        self._run(step, [span.request for span in contexts])
        self._first = [s.request_id for s in contexts if s.num_logit_rows and not s.request.num_generated]
        self._numbers = {
            "step": step,
            "start_us": int(self.now_us),
            "requests": scheduled.num_requests,
            "contexts": len(contexts),
            "rows": scheduled.budget.num_tokens,
            "context_rows": sum([span.num_rows for span in contexts]),
            "padding": padded.num_padding,
            "paused": len(scheduled.paused_requests),
            "waiting": self.num_live - scheduled.num_requests,
            "free_blocks": scheduled.budget.num_free_blocks or 0,
            "reused": sum([self._credit(span) for span in contexts]),
            "host_ns": 0,
        }

    def _credit(self, span: Span) -> int:
        """Return what the cache gave a request that begins here: nobody else starts behind its first token."""
        credit = 0 if span.request_id in self._begun else span.start
        if span.num_logit_rows:
            self._begun.discard(span.request_id)
        else:
            self._begun.add(span.request_id)
        return credit

    def _run(self, step: int, requests: Sequence[LlmRequest]) -> None:
        """Note that requests run in a step, and how long they had waited for it."""
        for request in requests:
            waits = self._waits.get(request.spec.request_id)
            if waits is None:
                continue  # it has ended, and this row is its last, wasted one
            waited = step - waits.last_step - 1
            if waited > waits.max_wait_steps:
                waits.max_wait_steps = waited
                self.max_wait_steps = max(self.max_wait_steps, waited)
            if waits.first_step < 0:
                waits.first_step = step
            waits.last_step = step

    def _note_runs(self) -> None:
        """Write down the last step of a batch that repeated, request by request."""
        for request in self._batch.requests:
            waits = self._waits.get(request.spec.request_id)
            if waits is not None:
                waits.last_step = self._batch.step

    def _see_path(self, chosen: Selection) -> None:
        numbers = self._numbers
        path, computed = EAGER, numbers["rows"]
        if chosen.key is not None:
            path, computed = GRAPH, chosen.key.num_tokens()
        elif chosen.prefill_bucket is not None:
            path, computed = PREFILL, chosen.prefill_bucket
        else:
            numbers["padding"] = 0  # a miss runs the batch as it was
        line = (self._costs.graph, self._costs.prefill, self._costs.eager)[path]
        cost = line.microseconds(computed, self._kv_tokens)
        numbers["path"], numbers["computed_rows"], numbers["cost_us"] = path, computed, int(cost)
        numbers["reason"] = NO_REASON if chosen.reason is None else REASONS.index(chosen.reason)
        for name, number in numbers.items():
            self._columns[name].append(number)
        self._charged_us += cost
        for request_id in self._first:
            if request_id in self._waits:
                self._waits[request_id].first_token_us = self.now_us + cost

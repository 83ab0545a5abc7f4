"""NullRunner: a runner that decides everything and computes nothing, for a scheduler served without a model.

Padding, promotion and the choice of a graph are the engine's own decisions over the real batch, as ``decoder.py`` asks
them, and their records go to the probe. No graph is captured: whatever the configuration would capture counts as
captured after ``warmup``. A sample is a number that no two requests share, so generated blocks match no other prompt.

Does not: pack, copy, hold tensors or weights, or take the steady path. Source: simulated workers of serving
benchmarks; here it stands behind the runner contract, so the executor above it is the one that serves.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import overload

from engine.cuda_graphs.dummies import PaddingDummies
from engine.cuda_graphs.key import KeyType, SampleMode, capture_keys
from engine.cuda_graphs.select import BodyFacts, Selection
from engine.decisions import Decisions
from engine.inputs.records import RunEvent, ScheduledInputs
from engine.inputs.steady import SteadyRefusal
from engine.probe import Probe, Stage
from engine.reasons import PathKind
from engine.resources import ResourceManager
from engine.runners.graph_questions import choose_graph, graph_facts, plan_padding
from engine.runners.interface import (
    ForwardOutputs,
    PendingLogits,
    ScheduledModelRunner,
    WarmupReport,
    require_cold,
)
from engine.scheduled import PaddedBatch, ScheduledRequests, Span


@dataclasses.dataclass(frozen=True, slots=True)
class NullRunnerConfig:
    """What the runner pretends to have captured. Units: buckets in requests, prefill_buckets in rows, ascending.

    There are no graphs of a draft length.
    """

    max_batch_size: int
    buckets: tuple[int, ...]
    prefill_buckets: tuple[int, ...] = ()
    padding_enabled: bool = True

    def buckets_of(self, draft_len: int) -> tuple[int, ...]:
        """Batch sizes with graphs of a draft length."""
        return () if draft_len else self.buckets

    @property
    def graphs_enabled(self) -> bool:
        """Whether there are graphs at all."""
        return bool(self.buckets or self.prefill_buckets)


class _LaterSpans(Sequence[Span]):
    """The rows of a padded batch, made when somebody looks: most steps nobody does."""

    __slots__ = ("_len", "_made", "_make")

    def __init__(self, make: Callable[[], Sequence[Span]], length: int) -> None:
        self._make, self._len = make, length
        self._made: tuple[Span, ...] | None = None

    def __len__(self) -> int:
        return self._len

    @overload
    def __getitem__(self, at: int) -> Span: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Span, ...]: ...
    def __getitem__(self, at: int | slice) -> Span | tuple[Span, ...]:
        if self._made is None:
            self._made = tuple(self._make())
        return self._made[at]


class NullRunner(ScheduledModelRunner):
    """Pads and chooses for every batch, and runs nothing."""

    def __init__(self, config: NullRunnerConfig, decisions: Decisions | None = None) -> None:
        """Hold the decisions; nothing counts as captured before ``warmup``."""
        self._config = config
        self._decisions = decisions or Decisions()
        self._dummies: PaddingDummies | None = None
        self._captured: frozenset[KeyType] = frozenset()
        self._probe: Probe | None = None

    def set_probe(self, probe: Probe | None) -> None:
        """Attach or detach the observer; it sees PADDED, GRAPH_CHOSEN and RAN."""
        self._probe = probe

    def forward(
        self, inputs: ScheduledInputs, *, resource_manager: ResourceManager, is_dummy: bool = False
    ) -> ForwardOutputs:
        """Decide how the batch would run. There are no logits."""
        padded = self._pad(inputs.batch)
        if self._probe is not None:
            self._probe.emit(Stage.PADDED, inputs.step, padded)
        selection = self._select(inputs.batch, padded, is_dummy=is_dummy)
        if self._probe is not None:
            self._probe.emit(Stage.GRAPH_CHOSEN, inputs.step, selection)
        event = _event(selection)
        if self._probe is not None:
            self._probe.emit(Stage.RAN, inputs.step, event)
        return ForwardOutputs(PendingLogits(), event)

    def roll_back(self) -> None:
        """Have nothing to forget: no step is derived from the one before."""

    def warmup(self, resource_manager: ResourceManager) -> WarmupReport:
        """Take the padding dummy's block and slot, and count every configured key as captured."""
        require_cold(is_warm=self._dummies is not None)
        if self._config.graphs_enabled:
            dummies = PaddingDummies(resource_manager)
            dummies.preallocate()
            self._dummies = dummies
            self._captured = frozenset(capture_keys(self._config.buckets, [mode.value for mode in SampleMode]))
        return WarmupReport(captures=(), pool_bytes=0, seconds=0.0, simulated=True)

    def release_graphs(self) -> None:
        """Give the padding dummy back; every later step is eager."""
        self._captured = frozenset()
        if self._dummies is not None:
            self._dummies.drop()
            self._dummies = None

    def wait_for_input_copy(self) -> None:
        """Return at once: nothing is ever copied."""

    def _pad(self, batch: ScheduledRequests) -> PaddedBatch:
        """Promote final contexts, then fill the bucket; the rows are made when somebody looks."""
        dummies = self._dummies
        if dummies is None:
            return PaddedBatch(batch, _LaterSpans(lambda: batch.spans, batch.num_requests))
        promoted, num_padding = plan_padding(self._decisions, batch, self._config, dummies)

        def make() -> Sequence[Span]:
            spans = (*promoted, *batch.generation_requests) if promoted else None
            return dummies.pad(batch, num_padding, draft_len=batch.draft_len, spans=spans).spans

        promoted_ids = tuple([span.request_id for span in promoted])
        return PaddedBatch(batch, _LaterSpans(make, batch.num_requests + num_padding), num_padding, promoted_ids)

    def _select(self, batch: ScheduledRequests, padded: PaddedBatch, *, is_dummy: bool) -> Selection:
        """Choose the graph; chains count as captured from warm-up to release."""
        config = self._config
        meant = config.prefill_buckets
        chains, released = ((), meant) if self._dummies is None else (meant, ())
        num_contexts = len(batch.context_requests)
        num_rows = batch.budget.num_tokens if meant and num_contexts else 0
        facts = graph_facts(
            batch,
            padded,
            config,
            self._dummies,
            mode=SampleMode.GREEDY,
            is_warmup=is_dummy,
            captured=self._captured,
            body=BodyFacts(is_recorded=True, prefill_buckets=chains, num_rows=num_rows, released_buckets=released),
        )
        return choose_graph(self._decisions, facts, num_contexts)


def _event(selection: Selection) -> RunEvent:
    """Say how the step would have run."""
    path, key = PathKind.EAGER, None
    if selection.key is not None:
        path, key = PathKind.REPLAY, str(selection.key)
    elif selection.prefill_bucket is not None:
        path = PathKind.PREFILL_REPLAY
    return RunEvent(
        path=path, simulated=True, key=key, check=None, pool_bytes=0, steady_refusal=SteadyRefusal.NOTHING_RECORDED
    )

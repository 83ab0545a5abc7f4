"""From logged steps to snapshots: outlines, with the path as it was logged or as the engine's own rule derives it.

Where a log does not say how a step ran, ``engine/cuda_graphs/select.py`` decides over the logged numbers and the bucket
list that was given, so the checklist of conditions is the engine's. It takes padding as available, and a graph as
captured for every bucket, at each draft length that comes.

Does not: read a log, or invent what it does not say: there are no rows, blocks, buffers or tokens in an outline.
"""

import dataclasses
import functools
from typing import Final

import numpy as np

from engine.cuda_graphs.key import SampleMode, capture_keys
from engine.cuda_graphs.select import BodyFacts, GraphFacts, select_graph
from engine.errors import TraceError
from engine.reasons import FallOff, PathKind
from lab.imports.logged import LoggedStep
from lab.outline import IMPORTED, NAMELESS
from lab.snapshot import (
    SNAPSHOT_VERSION,
    STAGES,
    UNKNOWN,
    BudgetView,
    ConditionView,
    GraphView,
    MetadataView,
    OutcomeView,
    PathView,
    ReservationView,
    RowsView,
    ScheduleView,
    SpanView,
    StepSnapshot,
)

_DECISIVE: Final = (  # the other conditions cannot fail here: nobody knows what they ask
    FallOff.GRAPHS_DISABLED,
    FallOff.HAS_CONTEXT_UNPROMOTED,
    FallOff.ABOVE_LARGEST_PREFILL_BUCKET,
    FallOff.ABOVE_LARGEST_BUCKET,
    FallOff.NO_EXACT_BUCKET_PADDING_OFF,
)
_RAN: Final = STAGES.index("RAN")
_NONE: Final = np.zeros(0, np.int32)
_CODES: Final = np.zeros(0, np.uint8)
_NO_ROWS: Final = RowsView(_NONE, _CODES, _NONE, _NONE, _CODES, _NONE, _NONE)
_NO_BLOCKS: Final = ReservationView((), (), (), UNKNOWN)
_NO_OUTCOME: Final = OutcomeView((), (), (), ())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is known of the other engine's configuration. buckets: None when nobody said; 0: a limit nobody said."""

    buckets: tuple[int, ...] | None = None
    prefill_buckets: tuple[int, ...] = ()
    padding: bool = True
    max_batch_size: int = 0
    max_num_tokens: int = 0


def make_snapshot(logged: LoggedStep, limits: Limits) -> StepSnapshot:
    """Return the outline of a step. Raises: TraceError when its path is neither logged nor can be derived."""
    path, graph, padded = _path(logged, limits)
    times = np.full(len(STAGES), np.nan, np.float32)
    if logged.host_us is not None:
        times[_RAN] = logged.host_us  # of the whole step: a log does not divide it
    requests = UNKNOWN if logged.requests is None else logged.requests
    budget = BudgetView(logged.rows, limits.max_num_tokens, requests, limits.max_batch_size, logged.free_blocks)
    return StepSnapshot(
        version=SNAPSHOT_VERSION,
        step=logged.step,
        mode=IMPORTED,
        schedule=ScheduleView(_spans(logged), (), (), budget, draft_len=logged.draft_len),
        reservation=_NO_BLOCKS,
        rows=_NO_ROWS,
        buffers=(),
        metadata=_metadata(logged.num_contexts or 0, logged.rows, padded),
        path=path,
        graph=graph,
        outcome=_NO_OUTCOME,
        host_us=times,
    )


@functools.lru_cache(maxsize=1024)
def _metadata(num_contexts: int, num_tokens: int, padded: int | None) -> MetadataView:
    return MetadataView(0, "", _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, (), num_contexts, num_tokens, padded)


def _spans(logged: LoggedStep) -> tuple[SpanView, ...]:
    """Return a span for each request that was counted, one for all of those that were not; only their sum is a fact."""
    if not logged.rows:
        return ()
    if logged.requests is None or logged.num_contexts is None:
        return (_span("C", logged.rows),)
    generations = logged.requests - logged.num_contexts
    context_rows = logged.context_rows
    if context_rows is None:
        context_rows = logged.rows - generations * (1 + logged.draft_len)
    kind = "E" if logged.draft_len else "G"
    return (
        *_shares("C", logged.num_contexts, context_rows),
        *_shares(kind, generations, logged.rows - context_rows),
    )


@functools.lru_cache(maxsize=1024)
def _shares(kind: str, count: int, rows: int) -> tuple[SpanView, ...]:
    each, more = divmod(rows, count) if count else (0, 0)
    return tuple([_span(kind, each + (at < more)) for at in range(count)])


def _span(kind: str, rows: int) -> SpanView:
    return SpanView(NAMELESS[kind], kind, UNKNOWN, rows, UNKNOWN)


def _path(logged: LoggedStep, limits: Limits) -> tuple[PathView, GraphView, int | None]:
    """Return the decision, how the step ran, and the rows that ran on a graph."""
    requests = UNKNOWN if logged.requests is None else logged.requests
    if not logged.rows:
        return PathView(None, None, None, requests, 0, ()), _graph(PathKind.EAGER, None), None
    if logged.path is None:
        return _derived(logged, limits)
    how, padded = PathKind(logged.path), logged.rows if logged.padded is None else logged.padded
    if how is PathKind.EAGER:
        conditions = _only_condition(logged, limits)
        return PathView(None, logged.reason, None, requests, 0, conditions), _graph(how, None), None
    if how is PathKind.PREFILL_REPLAY:
        return PathView(None, None, None, requests, 0, ()), _graph(how, f"({padded} rows)"), padded
    bucket = padded // (1 + logged.draft_len)
    key = f"(batch {bucket}, draft {logged.draft_len})"
    return PathView(key, None, bucket, requests, max(0, bucket - max(0, requests)), ()), _graph(how, key), padded


def _graph(how: PathKind, key: str | None) -> GraphView:
    return GraphView(how.value, simulated=False, key=key, pool_bytes=0)


def _only_condition(logged: LoggedStep, limits: Limits) -> tuple[ConditionView, ...]:
    """Return the one line that a logged reason stands for, where the bucket list has its number."""
    if logged.reason is None or not limits.buckets:
        return ()
    is_prefill = logged.reason == "ABOVE_LARGEST_PREFILL_BUCKET"
    what, got = ("rows", logged.rows) if is_prefill else ("requests", logged.requests)
    return (ConditionView(logged.reason, passed=False, needed=f"at most {limits.buckets[-1]} {what}", got=str(got)),)


def _derived(logged: LoggedStep, limits: Limits) -> tuple[PathView, GraphView, int | None]:
    if limits.buckets is None:
        message = (
            f"how step {logged.step} ran must be in the file, or follow from the engine's bucket list, got neither; "
            "give the list with --buckets 1,2,4 (--buckets none: it ran without graphs)"
        )
        raise TraceError(message)
    if logged.requests is None or logged.num_contexts is None:
        message = (
            f"how step {logged.step} ran follows from the buckets only where the file counts requests and contexts, "
            "got no such numbers; add them, or the path"
        )
        raise TraceError(message)
    draft_buckets = {logged.draft_len: limits.buckets}
    selection = select_graph(
        GraphFacts(
            num_requests=logged.requests,
            num_contexts=logged.num_contexts,
            draft_len=logged.draft_len,
            sample_mode=SampleMode.GREEDY,
            graphs_enabled=bool(limits.buckets or limits.prefill_buckets),
            is_warmup=False,
            padding_enabled=limits.padding,
            buckets=limits.buckets,
            max_batch_size=limits.max_batch_size or max(limits.buckets, default=0),
            dummy_available=True,
            captured=frozenset(capture_keys(limits.buckets, ("greedy",), draft_buckets=draft_buckets)),
            body=BodyFacts(prefill_buckets=limits.prefill_buckets, num_rows=logged.rows),
        )
    )
    conditions = tuple(
        [
            ConditionView(c.reason.value, c.passed, c.needed, c.got)
            for c in selection.conditions
            if c.reason in _DECISIVE
        ]
    )
    reason = None if selection.reason is None else selection.reason.value
    key = None if selection.key is None else f"(batch {selection.key.batch_size}, draft {selection.key.draft_len})"
    path = PathView(key, reason, selection.bucket, logged.requests, selection.num_padding, conditions)
    if selection.key is not None:
        return path, _graph(PathKind.REPLAY, key), selection.key.num_tokens()
    if selection.prefill_bucket is not None:
        rows = selection.prefill_bucket
        return path, _graph(PathKind.PREFILL_REPLAY, f"({rows} rows)"), rows
    return path, _graph(PathKind.EAGER, None), None

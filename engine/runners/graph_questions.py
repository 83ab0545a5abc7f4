"""What every runner asks of a batch before it runs: whom to promote, how many dummies to add, which facts decide.

A runner that computes and one that only decides must ask alike, or a replay in virtual time would say nothing about an
engine; so the questions are here, and the answers are the functions of ``decisions.py``.

Does not: answer, add the dummies (``cuda_graphs/dummies.py``), or look at tensors.
"""

import dataclasses
from typing import Protocol

from engine.cuda_graphs.dummies import PaddingDummies
from engine.cuda_graphs.key import KeyType, SampleMode
from engine.cuda_graphs.select import BodyFacts, GraphFacts, Selection
from engine.decisions import Decisions
from engine.scheduled import PaddedBatch, ScheduledRequests, Span


class GraphLimits(Protocol):
    """The part of a runner's configuration that decides about graphs."""

    @property
    def max_batch_size(self) -> int:
        """Requests that a step may hold."""
        ...

    @property
    def graphs_enabled(self) -> bool:
        """Whether there are graphs at all."""
        ...

    @property
    def padding_enabled(self) -> bool:
        """Whether dummies may fill a bucket."""
        ...

    def buckets_of(self, draft_len: int) -> tuple[int, ...]:
        """Batch sizes with graphs of a draft length, ascending."""
        ...


def plan_padding(
    decisions: Decisions, batch: ScheduledRequests, limits: GraphLimits, dummies: PaddingDummies
) -> tuple[tuple[Span, ...], int]:
    """Return the contexts that run as decode rows, none or all of them, and the number of dummies behind the batch."""
    promoted: tuple[Span, ...] = ()
    if batch.context_requests:
        promoted = decisions.promote_final_contexts(
            batch, graphs_enabled=limits.graphs_enabled, draft_len=batch.draft_len
        )
    num_padding = decisions.num_padding_requests(
        num_requests=batch.num_requests,
        num_contexts=0 if promoted else len(batch.context_requests),
        buckets=limits.buckets_of(batch.draft_len),
        enabled=limits.padding_enabled,
        dummy_available=dummies.available(batch.draft_len),
    )
    return promoted, num_padding


def choose_graph(decisions: Decisions, facts: GraphFacts, num_contexts: int) -> Selection:
    """Ask for a graph of the batch as padded; where promoted rows have none, ask for a chain of the batch as it came.

    num_contexts: of the batch before promotion. Without a chain either, the answer is the first one.
    """
    chosen = decisions.select_graph(facts)
    if chosen.reason is None or facts.num_contexts == num_contexts or not facts.body.prefill_buckets:
        return chosen
    as_it_came = decisions.select_graph(dataclasses.replace(facts, num_contexts=num_contexts))
    return chosen if as_it_came.prefill_bucket is None else as_it_came


def num_contexts_left(batch: ScheduledRequests, padded: PaddedBatch) -> int:
    """Count the contexts that were not promoted: all of the batch's, or none."""
    return 0 if padded.promoted_request_ids else len(batch.context_requests)


def graph_facts(
    batch: ScheduledRequests,
    padded: PaddedBatch,
    limits: GraphLimits,
    dummies: PaddingDummies | None,
    *,
    mode: SampleMode,
    is_warmup: bool,
    captured: frozenset[KeyType],
    body: BodyFacts,
) -> GraphFacts:
    """Lay out the numbers that decide the step's path."""
    return GraphFacts(
        num_requests=batch.num_requests,
        num_contexts=num_contexts_left(batch, padded),
        draft_len=batch.draft_len,
        sample_mode=mode,
        graphs_enabled=limits.graphs_enabled,
        is_warmup=is_warmup,
        padding_enabled=limits.padding_enabled,
        buckets=limits.buckets_of(batch.draft_len),
        max_batch_size=limits.max_batch_size,
        dummy_available=dummies is not None and dummies.available(batch.draft_len),
        captured=captured,
        body=body,
    )

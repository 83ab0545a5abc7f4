"""Faults of the steps that are derived from the one before, and of contexts that join the decode rows.

Does not: run them (``runs.py``). Source: each fault names the bug or rule it is modelled on.
"""

import contextlib
from typing import Any, ClassVar, Final

import torch

from engine.attention import native
from engine.attention.interface import AttentionStep, SteadyStep
from engine.attention.native import NativeMetadata
from engine.config import SamplingParams
from engine.cuda_graphs.promote import promote_final_contexts
from engine.decisions import Decisions
from engine.runners.steady_path import SteadyPath
from engine.scheduled import RowKind, ScheduledRequests, Span
from lab.faults.fault import FOUR, GREEDY, Fault, Joining, Workload, part, small_config, swapped

_BUDGET: Final = 4  # KV tokens that the trimming backend wants to attend over
_BRIEF: Final = SamplingParams(max_tokens=3, ignore_eos=True)


class TrimmingMetadata(NativeMetadata):
    """A backend that works out for itself how many cached tokens it uses, in the very list that it was handed.

    Its steady steps take each length from the list recorded by the last full step. ``takes_snapshot`` records a copy
    of that list, made before the backend trims it; without it, record and backend share one list.
    """

    takes_snapshot: ClassVar[bool] = False

    def prepare(self, step: AttentionStep) -> None:
        """Prepare as usual, then trim the counts in place, as a sparse backend does for its own tables."""
        counts = list(step.kv_cache_params.num_cached_tokens_per_seq)
        self._recorded = list(counts) if self.takes_snapshot else counts
        self._num_steps = 0
        super().prepare(step)
        counts[:] = [min(count, _BUDGET) for count in counts]

    def advance(self, step: SteadyStep) -> None:
        """Derive the lengths from the recorded counts."""
        super().advance(step)
        self._num_steps += 1
        lengths = [count + 1 + self._num_steps for count in self._recorded]
        self._stream.copy_(self.kv_lens[: len(lengths)], torch.tensor(lengths, dtype=torch.int32))


def _keeping_old_record() -> contextlib.AbstractContextManager[None]:
    """Keep the steady record when a step cannot use it, for a later one that looks like it."""
    take = part(SteadyPath, "take")

    def take_and_keep(self: Any, *arguments: Any, **options: Any) -> Any:
        held = self._held
        use = take(self, *arguments, **options)
        if use is None:
            self._held = held
        return use

    return swapped(SteadyPath, "take", take_and_keep)


def _promote_as_generations() -> Decisions:
    """Promote contexts as if each of them had a sample in its slot, as every prepared request once claimed."""

    def promote(batch: ScheduledRequests, *, graphs_enabled: bool, draft_len: int = 0) -> tuple[Span, ...]:
        promoted = promote_final_contexts(batch, graphs_enabled=graphs_enabled, draft_len=draft_len)
        for span in promoted:
            span.request.py_batch_idx = span.request.py_seq_slot
        return tuple(Span(span.request, RowKind.GENERATION, span.start, 1, 1) for span in promoted)

    return Decisions(promote_final_contexts=promote)


STEADY_FAULTS: Final = (
    Fault(
        name="cached-list-aliased",
        explanation=(
            "The steady path remembers the list of cached lengths, and the attention backend trims that same list for "
            "its own use. The next derived step attends over the trimmed lengths."
        ),
        rule="What a later step will use is a copy, taken before anybody downstream may change it.",
        source="a rule of NVIDIA/TensorRT-LLM: its steady path copies the cached lengths, which sparse backends clamp",
        workload=Workload(FOUR, small_config()),
        patch=lambda: swapped(native, "NativeMetadata", TrimmingMetadata),
    ),
    Fault(
        name="steady-record-not-dropped",
        explanation=(
            "A third request joins for three steps and leaves. The record from before is still there, the requests "
            "are the same again, and the derived step adds one to lengths that are three steps old."
        ),
        rule="Every step that is not derived drops the record; only the step right behind it may use it.",
        source="a rule of NVIDIA/TensorRT-LLM (its steady path, PR 16313): the full path invalidates the cache first",
        workload=Workload(
            (Joining("Hello there"), Joining("abc"), Joining("xyz!?", 4, _BRIEF)), small_config(batch_sizes=(2, 4))
        ),
        patch=_keeping_old_record,
    ),
    Fault(
        name="promotion-by-stale-index",
        explanation=(
            "The last prompt token of a context joins the decode rows. It is taken for a generation, and its token is "
            "gathered from the request's slot, where some earlier request left its last sample."
        ),
        rule="A promoted context takes token and position from its prompt cursor; its batch index is of another life.",
        source="NVIDIA/TensorRT-LLM PR 16746: promoted rows must not read py_batch_idx of an earlier batch",
        workload=Workload(
            (Joining("abc", params=_BRIEF), Joining("Hello"), Joining("nine char", 4, GREEDY)),
            small_config(chunk_rows=9),
        ),
        decisions=_promote_as_generations,
    ),
)

"""SteadyPath: holds the steady record between two steps, and asks the two tests about it.

``take`` always lets go of the record: whatever the step turns out to be, only ``record`` or ``keep`` may leave one for
the next. So a full step leaves nothing unless it may, and a step that is undone is told to ``forget``.

Does not: decide (``inputs/steady.py``), write buffers (``inputs/prepare.py``), or report stages (``decoder.py``).
Source: TensorRT-LLM's steady-generation cache in its decoder runner.
"""

import dataclasses

from engine.attention.interface import AttentionMetadata, SteadyStep
from engine.cuda_graphs.key import SampleMode
from engine.cuda_graphs.select import Selection
from engine.decisions import Decisions
from engine.inputs.host_inputs import HostInputs
from engine.inputs.prepare import SteadyInputs
from engine.inputs.records import ScheduledInputs
from engine.inputs.steady import RecordingFacts, SteadyRecord, SteadyRefusal, SteadyRows, UseFacts
from engine.kv_cache.manager import KVCacheManager
from engine.scheduled import PaddedBatch, RowKind


@dataclasses.dataclass(frozen=True, slots=True)
class StepPlan:
    """What a full step decided and prepared, all of it still true in a steady step."""

    selection: Selection
    mode: SampleMode
    metadata: AttentionMetadata


@dataclasses.dataclass(frozen=True, slots=True)
class SteadyUse:
    """What a step is derived from: the plan and the views of the full step, and the rows of this one."""

    plan: StepPlan
    inputs: SteadyInputs
    rows: SteadyRows

    @property
    def step(self) -> SteadyStep:
        """The attention backend's part."""
        return SteadyStep(self.rows.num_rows, self.rows.changed_rows, self.rows.changed_tables)


class SteadyPath:
    """At most one record. refusal: why the last step was not derived from the one before; None when it was."""

    def __init__(self, decisions: Decisions) -> None:
        """Start without a record."""
        self._decisions = decisions
        self._held: tuple[SteadyRecord, SteadyUse] | None = None
        self._row_of: dict[int, int] = {}  # of the record's requests
        self.refusal: SteadyRefusal | None = SteadyRefusal.NOTHING_RECORDED

    def forget(self) -> None:
        """Let the record go: the last step was undone, or the graph it ran on is gone."""
        self._held = None

    def take(self, inputs: ScheduledInputs, kv_cache: KVCacheManager, *, is_dummy: bool) -> SteadyUse | None:
        """Return what this step may be derived from; the record is gone either way."""
        held, self._held = self._held, None
        batch = inputs.batch
        # The requests of a batch with contexts are not looked at, nor those of a step without a record.
        is_candidate = held is not None and not batch.context_requests
        facts = UseFacts(
            is_warmup=is_dummy,
            has_previous_sample=inputs.new_tensors_device is not None,
            num_contexts=len(batch.context_requests),
            requests=batch.generating if is_candidate else (),
            changed=None if held is None else kv_cache.changed_since(held[0].table_version),
            draft_len=batch.draft_len,
        )
        self.refusal = self._decisions.why_not_use_steady(None if held is None else held[0], facts)
        if held is None:  # whatever a swapped decision says, there is nothing to derive from
            self.refusal = self.refusal or SteadyRefusal.NOTHING_RECORDED
        if self.refusal is not None or held is None:
            return None
        rows = held[1].rows
        if facts.changed:
            grown = sorted([self._row_of[i] for i in facts.changed if i in self._row_of])
            tables = tuple([kv_cache.block_table(facts.requests[row].request_id) for row in grown])
            rows = SteadyRows(facts.requests, tuple(grown), tables)
        elif rows.changed_rows:
            rows = SteadyRows(facts.requests)
        return held[1] if rows is held[1].rows else dataclasses.replace(held[1], rows=rows)

    def keep(self, use: SteadyUse, kv_cache: KVCacheManager) -> None:
        """Leave the record of a step that was derived."""
        self._held = (SteadyRecord(use.rows.requests, kv_cache.table_version), use)

    def record(self, facts: RecordingFacts, full: SteadyUse, kv_cache: KVCacheManager) -> None:
        """Leave the record of a full step, if it passes the recording test. full: its own plan, views and rows."""
        if self._decisions.why_not_record_steady(facts) is None:
            self._row_of = {request_id: row for row, request_id in enumerate(full.rows.request_ids)}
            self.keep(full, kv_cache)


def recording_facts(batch: PaddedBatch, host: HostInputs, *, is_dummy: bool, model_adds_inputs: bool) -> RecordingFacts:
    """Count what the recording test asks about."""
    return RecordingFacts(
        is_warmup=is_dummy,
        num_contexts=host.num_contexts,
        num_extends=sum(span.kind is RowKind.EXTEND for span in batch.spans),
        num_generations=sum(span.kind is RowKind.GENERATION for span in batch.spans),
        num_padding=batch.num_padding,
        num_host_tokens=len(host.input_ids),
        num_previous_samples=len(host.previous_batch_indices),
        num_rows=host.num_tokens,
        # Corrected lengths are known to the host as upper bounds only, so nothing is derived from them either.
        draft_len=0 if host.drafts is None else max((host.drafts.draft_len, *host.drafts.previous_draft_lens)),
        model_adds_inputs=model_adds_inputs,
    )

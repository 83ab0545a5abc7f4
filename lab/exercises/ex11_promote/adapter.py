"""``promoted`` in the engine: which contexts run as decode rows. Does not: choose the graph that they may join."""

import dataclasses
from collections.abc import Callable
from typing import Any

from engine.config import CudaGraphConfig, EngineConfig, SchedulerConfig
from engine.decisions import Decisions
from engine.scheduled import RowKind, ScheduledRequests, Span
from lab.exercises.exercise import Case
from lab.exercises.workload import Workload, params


def decisions(function: Callable[..., Any], rule: str) -> Decisions:
    """Return decisions that promote the contexts which the function names, at the positions that it gives."""

    def promote(batch: ScheduledRequests, *, graphs_enabled: bool, draft_len: int = 0) -> tuple[Span, ...]:
        contexts = {span.request_id: span for span in batch.context_requests}
        rows = function(
            contexts=[_as_case(span) for span in contexts.values()], graphs_on=graphs_enabled, num_drafts=draft_len
        )
        return tuple(
            Span(contexts[request_id].request, RowKind.EXTEND, position, 1, 1) for request_id, position in rows
        )

    return dataclasses.replace(Decisions(), promote_final_contexts=promote)


def _as_case(span: Span) -> dict[str, Any]:
    request = span.request
    return {
        "id": span.request_id,
        "done": span.start,
        "take": span.num_rows,
        "prompt": request.py_prompt_len,
        "slot": request.py_batch_idx,
    }


def workload(case: Case | None) -> Workload:
    """Return a prompt of 17 tokens that is cut into 16 and 1, beside three requests that decode."""
    config = EngineConfig(
        device="cpu",
        max_seq_len=64,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=19, chunking="fcfs", chunk_unit=16),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4)),
    )
    prompts = (*((0, [at, 2, 3]) for at in (1, 2, 3)), (2, [(3 * k) % 90 + 1 for k in range(17)]))
    return Workload(config, prompts, params(8))

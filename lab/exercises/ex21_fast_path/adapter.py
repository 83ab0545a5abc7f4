"""``may_advance`` in the engine: whether a step may be derived from the one before. Does not: derive it."""

import dataclasses
from collections.abc import Callable
from typing import Any

from engine.decisions import Decisions
from engine.inputs.steady import SteadyRecord, SteadyRefusal, UseFacts, why_not_use
from lab.exercises.exercise import Case
from lab.exercises.workload import Workload, decode_workload


def decisions(function: Callable[..., Any], rule: str) -> Decisions:
    """Return decisions that take the fast path where the function says so, and a record was left."""

    def use(record: SteadyRecord | None, facts: UseFacts) -> SteadyRefusal | None:
        last = None if record is None else _quiet([request.request_id for request in record.requests])
        now = {
            "ids": [request.request_id for request in facts.requests],
            "contexts": facts.num_contexts,
            "drafts": 0,
            "warmup": facts.is_warmup,
            "samples": facts.has_previous_sample,
            "grown": sorted(facts.changed or ()),
        }
        if function(last, now):
            return None if record is not None else SteadyRefusal.NOTHING_RECORDED
        return why_not_use(record, facts) or SteadyRefusal.OTHER_REQUESTS

    return dataclasses.replace(Decisions(), why_not_use_steady=use)


def _quiet(ids: list[int]) -> dict[str, Any]:
    return {"ids": ids, "contexts": 0, "drafts": 0, "padding": 0, "warmup": False}


def workload(case: Case | None) -> Workload:
    """Return as many requests as the case has, with a graph of just that size, so that they decode without padding."""
    count = len(case["now"]["ids"]) if case else 2
    return decode_workload(count, sizes=(max(1, count),), num_tokens=6)

"""``bucket_for`` in the engine: it says how many dummies join a batch. Does not: change which graph is looked for."""

import dataclasses
from collections.abc import Callable
from typing import Any

from engine.decisions import Decisions
from lab.exercises.exercise import Case
from lab.exercises.workload import Workload, decode_workload


def decisions(function: Callable[..., Any], rule: str) -> Decisions:
    """Return decisions that pad a batch to the size that the function answers."""

    def num_padding(
        *,
        num_requests: int,
        num_contexts: int,
        buckets: tuple[int, ...],
        enabled: bool,
        dummy_available: bool,
        **_: object,
    ) -> int:
        if num_contexts or not enabled or not dummy_available:
            return 0
        size = function(sizes=list(buckets), batch=num_requests)
        return 0 if size is None else size - num_requests

    return dataclasses.replace(Decisions(), num_padding_requests=num_padding)


def workload(case: Case | None) -> Workload:
    """Return as many requests as the case's batch has, with its sizes."""
    found = case or {"sizes": [1, 2, 4, 8], "batch": 5}
    sizes = tuple(sorted({size for size in found["sizes"] if size <= 16})) or (1,)
    return decode_workload(found["batch"], sizes=sizes)

"""The case's steps in the engine, which takes its own fast path. Does not: decide anything."""

from lab.exercises.exercise import Case
from lab.exercises.workload import MOST_REQUESTS, Workload, decode_workload


def workload(case: Case | None) -> Workload:
    """Return as many requests as the case has, with a graph of just that size, for its steps and the first two."""
    found = case or {"count": 2, "steps": 3}
    count = max(1, min(found["count"], MOST_REQUESTS))
    return decode_workload(count, sizes=(count,), num_tokens=min(found["steps"], 20) + 2)

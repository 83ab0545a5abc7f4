"""A step like the case's in the engine: prompts join requests that decode. Does not: decide anything."""

from lab.exercises.exercise import Case
from lab.exercises.workload import Workload, joining_workload


def workload(case: Case | None) -> Workload:
    """Return prompts as long as the case's chunks, and a decoding request for each of its others."""
    found = case or {"chunks": [5, 1], "drafts": [3], "beams": [1, 1]}
    return joining_workload(len(found["drafts"]) + len(found["beams"]), found["chunks"])

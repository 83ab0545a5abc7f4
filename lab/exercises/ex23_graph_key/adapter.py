"""``graph_key`` in the engine: the key under which a step's graph is looked for.

Does not: change the other conditions.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from engine.cuda_graphs.key import SampleMode
from engine.cuda_graphs.select import GraphFacts, Selection, select_graph
from engine.decisions import Decisions
from lab.exercises.exercise import Case
from lab.exercises.workload import Workload, decode_workload


def decisions(function: Callable[..., Any], rule: str) -> Decisions:
    """Return decisions that look for the sampler which the function puts into its key."""

    def select(facts: GraphFacts) -> Selection:
        heat = 0.0 if facts.sample_mode is SampleMode.GREEDY else 1.0
        one = {"token": 1, "position": 1, "drafts": facts.draft_len, "temperature": heat}
        step = {
            "contexts": [1] * facts.num_contexts,
            "requests": [one] * facts.num_requests,
            "beams": 1,
            "all_greedy": heat == 0,
        }
        key = function(step)
        if key is None:
            return select_graph(dataclasses.replace(facts, captured=frozenset()))
        return select_graph(dataclasses.replace(facts, sample_mode=SampleMode(key[2])))

    return dataclasses.replace(Decisions(), select_graph=select)


def workload(case: Case | None) -> Workload:
    """Return as many requests as the case has."""
    count = len(case["step"]["requests"]) if case else 2
    return decode_workload(count, sizes=(1, 2, 4, 8))

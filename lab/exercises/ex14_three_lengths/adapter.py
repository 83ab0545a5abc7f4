"""``three_lengths`` in the engine: its query and cached lengths are what attention is told.

Does not: use ``kv`` and ``offsets``; the engine's attention derives them from the other two.
"""

from collections.abc import Callable, Sequence
from typing import Any

from engine.decisions import Decisions
from engine.inputs.host_inputs import HostInputs
from engine.scheduled import RowKind, Span
from lab.exercises.exercise import Case
from lab.exercises.repack import packing, whole_numbers
from lab.exercises.workload import Workload, joining_workload


def decisions(function: Callable[..., Any], rule: str) -> Decisions:
    """Return decisions that tell attention the lengths which the function answers."""

    def replacement(spans: Sequence[Span], host: HostInputs) -> dict[str, Any]:
        lengths = function(batch=[_entry(span) for span in spans], extra=0)
        return {
            "sequence_lengths": whole_numbers(lengths["query"], "query"),
            "num_cached_tokens_per_seq": whole_numbers(lengths["cached"], "cached"),
        }

    return packing(replacement)


def _entry(span: Span) -> dict[str, Any]:
    if span.kind is RowKind.CONTEXT:
        return {"kind": "context", "done": span.start, "take": span.num_rows}
    return {"kind": "decode", "known": span.start + 1, "drafts": span.num_rows - 1}


def workload(case: Case | None) -> Workload:
    """Return as many decoding requests as the case has, and prompts as long as its contexts, which join them."""
    found: list[dict[str, Any]] = (
        case["batch"] if case else [{"kind": "context", "done": 0, "take": 20}, {"kind": "decode"}]
    )
    lengths = [one["done"] + one["take"] for one in found if one["kind"] == "context"]
    return joining_workload(len(found) - len(lengths), lengths)

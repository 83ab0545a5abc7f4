"""``logit_rows`` in the engine: it says which rows are sampled. Does not: choose their slots, which are the owners'."""

from collections.abc import Callable, Sequence
from typing import Any

from engine.decisions import Decisions
from engine.errors import ExerciseError
from engine.inputs.host_inputs import HostInputs, LogitRows
from engine.scheduled import RowKind, Span
from lab.exercises.exercise import Case
from lab.exercises.repack import packing, whole_numbers
from lab.exercises.shape import counted
from lab.exercises.workload import Workload, joining_workload


def decisions(function: Callable[..., Any], rule: str) -> Decisions:
    """Return decisions that sample the rows which the function answers."""

    def replacement(spans: Sequence[Span], host: HostInputs) -> dict[str, Any]:
        rows = whole_numbers(function(batch=[_entry(span) for span in spans]), "rows")
        owners = [span.request.py_seq_slot for span in spans for _ in range(span.num_rows)]
        outside = next((row for row in rows if not 0 <= row < len(owners)), None)
        if outside is not None:
            message = f"row {outside} was answered for a step of {counted(len(owners), 'row')}"
            raise ExerciseError(message)
        slots = [owners[row] for row in rows]
        return {"logit_rows": LogitRows(rows, tuple(-1 if slot is None else slot for slot in slots))}

    return packing(replacement)


def _entry(span: Span) -> dict[str, Any]:
    if span.kind is RowKind.CONTEXT:
        return {"kind": "chunk", "rows": span.num_rows, "last": bool(span.num_logit_rows), "scores": False}
    if span.num_rows > 1:
        return {"kind": "verify", "drafts": span.num_rows - 1}
    return {"kind": "decode"}


def workload(case: Case | None) -> Workload:
    """Return as many decoding requests as the case has, and prompts as long as its chunks, which join them."""
    found: list[dict[str, Any]] = (
        case["batch"] if case else [{"kind": "chunk", "rows": 20}, {"kind": "decode"}, {"kind": "decode"}]
    )
    lengths = [one["rows"] for one in found if one["kind"] == "chunk"]
    return joining_workload(len(found) - len(lengths), lengths)

"""``lay_out`` in the engine: it lays out tokens, positions and lengths. Does not: lay out dummies."""

from collections.abc import Callable, Sequence
from typing import Any

from engine.decisions import Decisions
from engine.inputs.host_inputs import HostInputs
from engine.scheduled import Span
from lab.exercises.exercise import Case
from lab.exercises.repack import groups, known_tokens, packing, whole_numbers
from lab.exercises.workload import Workload, joining_workload


def decisions(function: Callable[..., Any], rule: str) -> Decisions:
    """Return decisions that pack as the function lays out; it knows requests by their places in the step."""

    def replacement(spans: Sequence[Span], host: HostInputs) -> dict[str, Any]:
        contexts, verifies, decodes, dummies = groups(spans)
        place = {span.request_id: at for at, span in enumerate(spans)}
        laid = function(
            contexts=[
                {"id": place[span.request_id], "chunk": known_tokens(span), "start": span.start} for span in contexts
            ],
            verifies=[_decode(span, place) | {"drafts": list(span.draft_tokens)} for span in verifies],
            decodes=[_decode(span, place) for span in decodes],
        )
        padding = [span.start + at for span in dummies for at in range(span.num_rows)]
        lengths = [*laid["lengths"], *(span.num_rows for span in dummies)]
        return {
            "input_ids": whole_numbers(laid["tokens"][: len(host.input_ids)], "tokens"),
            "position_ids": whole_numbers([*laid["positions"], *padding], "positions"),
            "sequence_lengths": whole_numbers(lengths, "lengths"),
        }

    return packing(replacement)


def _decode(span: Span, place: dict[int, int]) -> dict[str, Any]:
    return {"id": place[span.request_id], "known": span.start + 1, "newest": known_tokens(span)[0]}


def workload(case: Case | None) -> Workload:
    """Return as many decoding requests as the case has, and prompts as long as its chunks, which join them."""
    found = case or {"contexts": [{"chunk": [1, 2, 3, 4, 5]}], "verifies": [], "decodes": [{}, {}]}
    lengths = [len(one["chunk"]) for one in found["contexts"]]
    return joining_workload(len(found["verifies"]) + len(found["decodes"]), lengths)

"""``fill`` in the engine: it says which tokens the host sends and which slots the device reads.

Does not: hold the samples, which lie on the device; the function sees stand-ins for them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from engine.decisions import Decisions
from engine.inputs.host_inputs import HostInputs
from engine.inputs.pack import TokenSource, token_source
from engine.scheduled import Span
from lab.exercises.exercise import Case
from lab.exercises.repack import UNKNOWN, known_tokens, packing, whole_numbers
from lab.exercises.workload import Workload, joining_workload


def decisions(function: Callable[..., Any], rule: str) -> Decisions:
    """Return decisions that send the tokens and read the slots which the function answers."""

    def replacement(spans: Sequence[Span], host: HostInputs) -> dict[str, Any]:
        num_slots = 1 + max((span.request.py_batch_idx or 0 for span in spans), default=0)
        filled = function(
            rows=[row for span in spans for row in _rows(span)], samples=[UNKNOWN] * num_slots, pad=UNKNOWN
        )
        return {
            "input_ids": whole_numbers(filled["tokens"][: len(host.input_ids)], "tokens"),
            "previous_batch_indices": whole_numbers(filled["gathered"], "gathered"),
        }

    return packing(replacement)


def _rows(span: Span) -> list[dict[str, Any]]:
    """Describe a span as the exercise does: each host token is a row, drafts follow the token that they guess from."""
    source = token_source(span)
    slot = span.request.py_batch_idx if source is TokenSource.DEVICE else None
    is_dummy = source is TokenSource.ZERO
    rows = [{"sampled_at": slot, "host": token, "drafts": [], "dummy": is_dummy} for token in known_tokens(span)]
    rows[-1] = rows[-1] | {"drafts": list(span.draft_tokens)}
    return rows


def workload(case: Case | None) -> Workload:
    """Return as many decoding requests as rows of the case read a slot, and one prompt that joins them."""
    sampled = [row for row in case["rows"] if row["sampled_at"] is not None and not row["dummy"]] if case else []
    return joining_workload(len(sampled) or 3, [3])

"""The numbers that a reason's words may quote, found in the step that has the reason.

Does not: word a reason (``reasons.py``), or find what would have helped (``counterfactuals/``).
"""

from collections.abc import Sequence
from typing import Any

from lab.snapshot import StepSnapshot


def reason_arguments(step: StepSnapshot, buckets: Sequence[int] = ()) -> dict[str, Any]:
    """Return the numbers for the sentence and the fix of a step's reason. buckets: captured; no fix quotes them."""
    failed = next((line for line in step.path.conditions if line.passed is False), None)
    words = failed.needed.split() if failed else []
    number = next((word for word in words if word.isdigit()), "0")
    return {
        "requests": step.path.num_requests,
        "bucket": step.path.bucket,
        "largest": buckets[-1] if buckets else 0,
        "rows": sum(span.num_rows for span in step.schedule.spans),
        "largest_rows": number,
        "drafts": number,
        "contexts": sum(span.kind == "C" for span in step.schedule.spans),
        "mode": words[0] if words else "",
        "captured": failed.got if failed else "",
    }

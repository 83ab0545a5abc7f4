"""An outline's frame: what the stepper draws of a step that another engine logged, and a mark for the rest.

The rows stand as counts, so that the timeline is right; spans, which nobody named, are left out; a number that is not
known is a question mark. ``bare`` tells the browser to say so in place of a panel that it has nothing for.

Does not: encode a recorded step (``frames.py``), or word anything (``lab/outline.py``).
"""

from typing import Any

from lab.outline import UNTOLD, untold
from lab.snapshot import ROW_KINDS, UNKNOWN, StepSnapshot


def outlined(frame: dict[str, Any], step: StepSnapshot) -> dict[str, Any]:
    """Return the frame of an outline, from the one that it would have as a recorded step."""
    used, most, requests, most_requests, free = frame["sch"]["bud"]
    budget = [used, most or UNTOLD, untold(requests), most_requests or UNTOLD, free]
    return {
        **frame,
        "bare": True,
        "sch": {**frame["sch"], "spans": [], "bud": budget},
        "rows": _counted_rows(step),
        "path": {**frame["path"], "n": untold(frame["path"]["n"])},
    }


def _counted_rows(step: StepSnapshot) -> list[list[Any]]:
    """Return one group of rows for each kind: of nobody, at no position, with no tokens."""
    counts: dict[str, int] = dict.fromkeys(ROW_KINDS, 0)
    for span in step.schedule.spans:
        counts[span.kind] += span.num_rows
    counts["P"] = step.num_padding_rows
    return [[UNKNOWN, at, 0, UNKNOWN, UNKNOWN, counts[kind], []] for at, kind in enumerate(ROW_KINDS) if counts[kind]]

"""Which step ``--step`` means: the number that the table of steps shows, or a place counted from the end.

A recorded run numbers its steps from 0, so number and place are one. An imported log, or a run whose first steps were
let go, begins elsewhere; then what is typed is the number that the table and the sentences show.

Does not: read a trace, or show one.
"""

from typing import TYPE_CHECKING

from engine.errors import TraceError
from engine.fields import shown

if TYPE_CHECKING:
    from lab.trace import Trace


def place_of(trace: "Trace", number: int, what: str = "--step") -> int:
    """Return the index of the step with this number; a negative one counts from the end.

    what: names the number in the error. Raises: TraceError.
    """
    count = len(trace)
    if -count <= number < 0:
        return number + count
    place = next((at for at, step in enumerate(trace.steps) if step.step == number), None)
    if place is None:
        there = "left out: the file has no steps"
        if count:
            first, last = trace.steps[0].step, trace.steps[-1].step
            there = f"a step's number, {first} to {last}, or {-count} to -1, counted from the end"
        message = f"{what} must be {there}, got {shown(number)}"
        raise TraceError(message)
    return place

"""Flight: when a step was handed over, beside its neighbours: the order of what the host did, and when the device ran.

With overlap the host lays out step N + 1 before it reads the samples of step N. Order is a fact everywhere; a time of
the device is one only where device events measured it.

Does not: measure (``recorder.py``), or draw. Torch-free. Source: the two lanes of every overlap diagram.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class FlightView:
    """How the step overlapped with its neighbours.

    order: for each stage, when it came, counted over all stages of all steps of the recording; () when unknown.
    unread: steps whose samples the host had not read when this one was laid out. late: rows [start, end) whose token
    was on the device then, with the step that sampled it; it was filled in later. device_us: begin and end of the
    forward on the device, in microseconds since the first one recorded; None where no device event measured it.
    """

    order: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    late: tuple[tuple[int, int, int], ...] = ()
    device_us: tuple[int, int] | None = None

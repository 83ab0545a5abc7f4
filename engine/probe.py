"""The probe: how an observer sees every stage of every step without the engine knowing it.

``Probe`` is one method. Sites are single guarded lines (``if self._probe is not None: ...``) and exist only in
``py_executor.py`` and its runners, ``runners/decoder.py`` and ``runners/null.py``. The value handed over is a record
that the engine made anyway.

Valid: each stage's value may be read only inside ``emit``; persistent buffers and metadata change contents in
the next step, so an observer copies what it wants to keep (``lab/freeze.py`` does).
An exception in a probe propagates: a silent observer would be a lying observer.

Does not: buffer, time, filter or copy. Idea: one narrow seam instead of module hooks, which do not run when a
captured graph replays.
"""

import enum
from typing import Protocol

from engine.errors import ProbeError


class Stage(enum.IntEnum):
    """The ten stages of a step, in order, with the record that each hands over.

    SCHEDULED     ``scheduled.ScheduledRequests``
    RESERVED      ``resources.Reservation``
    PADDED        ``scheduled.PaddedBatch``
    GRAPH_CHOSEN  ``cuda_graphs.select.Selection``
    PACKED        ``inputs.host_inputs.HostInputs`` (full path) or ``inputs.steady.SteadyRows``
    COPIED        ``inputs.records.PreparedInputs`` (its ``writes`` say who wrote which span of which buffer)
    METADATA      ``attention.interface.AttentionMetadata``, just prepared
    RAN           ``inputs.records.RunEvent``
    SAMPLED       ``py_executor.SampledTokens`` (host values)
    COMMITTED     ``py_executor.StepCommit``
    """

    SCHEDULED = 0
    RESERVED = 1
    PADDED = 2
    GRAPH_CHOSEN = 3
    PACKED = 4
    COPIED = 5
    METADATA = 6
    RAN = 7
    SAMPLED = 8
    COMMITTED = 9


class Probe(Protocol):
    """An observer of the engine's decisions."""

    def emit(self, stage: Stage, step: int, value: object) -> None:
        """Receive the record of one stage of step ``step``; must not change it. Valid: inside this call only."""
        ...


class ProbeGuard:
    """Wraps an attached probe so that its exception can be told from the engine's own.

    Without it a fault of the observer would end the requests of the step; with it the step is undone, the requests
    stay runnable, and the exception reaches whoever called ``step``.
    """

    def __init__(self, probe: Probe) -> None:
        """Guard one probe."""
        self.probe = probe

    def emit(self, stage: Stage, step: int, value: object) -> None:
        """Pass the record on. Raises: ProbeError around whatever the probe raised."""
        try:
            self.probe.emit(stage, step, value)
        except Exception as error:
            raise ProbeError(error) from error

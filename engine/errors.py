"""The exception tree of the engine. Every error that a user can cause is one of these.

    StepscopeError
    |-- ConfigError (ValueError)         a config field, or two fields together, make no sense
    |-- RequestError (ValueError)        one request is refused; the engine goes on serving the others
    |   `-- UnknownRequestError (KeyError)  an id that was never submitted
    |-- ModelError (ValueError)          a model name, file or folder cannot be served
    |-- CapacityError                    blocks, slots or buffers do not suffice
    |   |-- OutOfBlocksError             the block pool is empty
    |   `-- NoFreeSlotsError             every sequence slot is taken
    |-- DispatchError (TypeError)        a scheduled batch for a packed runner, or the reverse
    |-- GraphError                       capture or replay would be wrong
    |   |-- CaptureRefusedError          an operation that a graph cannot record
    |   `-- ReplayRefusedError           the inputs are not those that the graph was captured with
    |-- ProbeError                       an observer raised; carries its exception to the caller, unchanged
    |-- ReentryError                     an LLM was called while one of its steps was running
    |-- ClosedError                      the engine was closed
    |-- TraceError (ValueError)          a trace file cannot be read
    `-- ExerciseError (ValueError)       an exercise, a course or a submission is not as it must be

A message says what was required, what was got, and the nearest thing to do. A refusal that is normal
(no graph for this batch) is a value with a reason from ``engine.reasons``, never one of these.

Does not: catch, log or translate anything.
"""


class StepscopeError(Exception):
    """Root of every error that Stepscope raises on purpose."""


class ConfigError(StepscopeError, ValueError):
    """A configuration cannot work; the message names the field and the fix."""


class RequestError(StepscopeError, ValueError):
    """One request cannot be served; nothing was enqueued for it."""


class UnknownRequestError(RequestError, KeyError):
    """The request id was never submitted, or its output was already handed out."""

    def __str__(self) -> str:
        """Return the message itself (KeyError would show its repr)."""
        return str(self.args[0]) if self.args else ""


class ModelError(StepscopeError, ValueError):
    """A model cannot be found, read or served."""


class CapacityError(StepscopeError):
    """Something of fixed size is full."""


class OutOfBlocksError(CapacityError):
    """The block pool has fewer free blocks than were asked for."""


class NoFreeSlotsError(CapacityError):
    """Every sequence slot belongs to a live request."""


class DispatchError(StepscopeError, TypeError):
    """The kind of batch does not match the kind of runner."""


class GraphError(StepscopeError):
    """A device graph cannot be captured or replayed safely."""


class CaptureRefusedError(GraphError):
    """The captured region does something that a graph cannot record; the message names op and line."""


class ReplayRefusedError(GraphError):
    """The step's inputs differ from the captured ones in a way that would replay wrongly."""


class ProbeError(StepscopeError):
    """An observer raised inside ``emit``; the executor undoes the step and raises ``original``."""

    def __init__(self, original: Exception) -> None:
        """Carry the observer's own exception."""
        super().__init__(f"a probe raised {original!r}")
        self.original = original


class ReentryError(StepscopeError):
    """A call from inside a probe, or from a second thread, in the middle of a step."""


class ClosedError(StepscopeError):
    """The engine was closed; make a new one."""


class TraceError(StepscopeError, ValueError):
    """A trace file is missing, truncated, of another version or not a trace."""


class ExerciseError(StepscopeError, ValueError):
    """An exercise, a course file or a submission cannot be used as it is; the message says what it lacks."""

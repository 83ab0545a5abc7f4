"""Turn: one call at a time touches the engine. A step refuses whoever comes in its middle; short calls are waited for.

In the middle of a step the engine is in two states at once: blocks reserved and not committed, inputs copied for a
graph that has not replayed. Nothing else may look at it or change it then, neither a probe, which the step itself
calls, nor another thread. A short call (submit, check, release) leaves the engine whole at once, so a step of another
thread begins behind it.

Does not: make an engine of many threads; a caller that was refused comes again when the step is over.
"""

import contextlib
import threading
from collections.abc import Generator

from engine.errors import ReentryError
from engine.interrupts import uninterrupted


class Turn:
    """The two locks of an engine: ``any_call`` is held by every call that touches it, ``step`` by one that steps.

    They are plain locks, taken together by ``with``, so that no Ctrl-C falls between taking one and giving it back.
    """

    __slots__ = ("any_call", "step")

    def __init__(self) -> None:
        """Begin with nobody inside."""
        self.any_call = threading.RLock()  # of a signal's handler, a short call in a short call does no harm
        self.step = threading.Lock()

    def require_idle(self) -> None:
        """Refuse a call in the middle of a step. Raises: ReentryError."""
        if self.step.locked():
            message = (
                "an LLM serves one call at a time and a step is running; call it from one thread, never from a probe"
            )
            raise ReentryError(message)

    @contextlib.contextmanager
    def between_steps(self) -> Generator[None]:
        """Hold the engine for a short call, which no probe sees. Raises: ReentryError in the middle of a step."""
        self.require_idle()
        with self.any_call:
            yield

    @contextlib.contextmanager
    def unless_elsewhere(self) -> Generator[None]:
        """As ``between_steps``, but a probe may do this in the step that calls it."""
        with uninterrupted():
            is_elsewhere = not self.any_call.acquire(blocking=False)
            if not is_elsewhere:
                self.any_call.release()
        if is_elsewhere:
            self.require_idle()
        with self.any_call:
            yield

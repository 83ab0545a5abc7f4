"""Ctrl-C held back while something is changed that must not be left half changed.

Replacing a signal handler is a call into the kernel, too slow for several a step. So ``listening`` does it once around
a long stretch of work, and ``uninterrupted`` inside it only counts; outside, it replaces the handler itself.

Does not: make work atomic against exceptions of its own, or against a killed process. Only the main thread gets
signals, so in another one this does nothing.
"""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType, TracebackType
from typing import Any


# Without __eq__ and __repr__: ``signal`` would compare and show it, at more than the cost of all else here.
@dataclasses.dataclass(slots=True, eq=False, repr=False)
class _Listener:
    """The handler that stands in for ``previous``. depth: blocks that must not be interrupted, one in the other."""

    previous: Callable[[int, FrameType | None], Any]
    depth: int = 0
    held: list[int] = dataclasses.field(default_factory=list[int])

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.depth:
            self.held.append(number)
        else:
            self.previous(number, frame)

    def let_out(self) -> None:
        """Hand on what was held back."""
        if self.held:
            number = self.held[0]
            self.held.clear()
            self.previous(number, None)


_current: list[_Listener] = []  # at most one


@contextlib.contextmanager
def listening() -> Generator[None]:
    """Stand in for the handler of Ctrl-C, so that ``uninterrupted`` inside costs next to nothing."""
    previous = signal.getsignal(signal.SIGINT)
    if _current or threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    listener = _Listener(previous, depth=1)  # a signal between two lines here must not leave one of them undone
    try:
        signal.signal(signal.SIGINT, listener)
        _current.append(listener)
        listener.depth -= 1
        listener.let_out()
        yield
    finally:
        listener.depth += 1
        _current.clear()
        signal.signal(signal.SIGINT, previous)
        listener.let_out()


class uninterrupted:  # noqa: N801 - it is used as contextlib's own are, and a generator would cost several times as much
    """Hold a Ctrl-C back until the block is done, so that bookkeeping is never half applied.

    It comes out behind the block even if that raised; the block's exception is then its context.
    """

    __slots__ = ("_listener", "_own")

    def __enter__(self) -> None:
        """Begin to hold back; without a listener, with one of this block's own."""
        self._own: contextlib.AbstractContextManager[None] | None = None
        self._listener: _Listener | None = None
        if threading.current_thread() is not threading.main_thread():
            return
        if not _current:
            self._own = listening()
            self._own.__enter__()
        if _current:
            self._listener = _current[0]
            self._listener.depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hand on what came, when this is the outermost block."""
        listener = self._listener
        try:
            if listener is not None:
                listener.depth -= 1
                if not listener.depth:
                    listener.let_out()
        finally:
            if self._own is not None:
                self._own.__exit__(None, None, None)

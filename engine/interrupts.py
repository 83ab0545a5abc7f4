"""Ctrl-C held back while something is changed that must not be left half changed.

Does not: make work atomic against exceptions of its own, or against a killed process. Only the main thread gets
signals, so in another one this does nothing.
"""

import contextlib
import signal
import threading
from collections.abc import Generator


@contextlib.contextmanager
def uninterrupted() -> Generator[None]:
    """Hold a Ctrl-C back until the block is done, so that bookkeeping is never half applied.

    It comes out behind the block even if that raised; the block's exception is then its context.
    """
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    held: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if held:
            previous(held[0], None)

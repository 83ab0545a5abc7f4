"""The garbage collector held back while millions of objects are made that all stay.

A collection looks at every object that may be part of a cycle, and records never are: making a long run's steps would
take half again as long for nothing.

Does not: free anything, or keep it from other threads, which do without collections for as long.
"""

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def collector_held() -> Generator[None]:
    """Hold collections back in the block; inside another such block, or where they are off already, do nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

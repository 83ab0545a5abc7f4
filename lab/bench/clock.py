"""Seconds of device work, and how fast the device reads memory.

Does not: know engines or models.
"""

import statistics
import time
from collections.abc import Callable

import torch


def elapsed(fn: Callable[[], object], device: torch.device) -> float:
    """Run fn and return its seconds: between two events on CUDA, by the host's clock elsewhere."""
    if device.type != "cuda":
        began = time.perf_counter()
        fn()
        return time.perf_counter() - began
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    fn()
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end) / 1e3


def median_of(fn: Callable[[], object], device: torch.device, *, rounds: int, calls: int) -> float:
    """Return the median, over rounds, of the seconds of one call; the calls of a round follow each other at once.

    One round runs before the first that counts.
    """

    def burst() -> None:
        for _ in range(calls):
            fn()

    burst()
    return statistics.median(elapsed(burst, device) for _ in range(rounds)) / calls


def read_bandwidths(device: torch.device, *, nbytes: int, rounds: int = 5, seconds: float = 0.0) -> dict[str, float]:
    """Return bytes a second that the device reads in each of three passes over random numbers.

    The passes (a sum, a maximum, a matrix-vector product) read everything once and write next to nothing. What counts
    is the median of rounds of so many seconds, four passes at least: as the work is timed whose limit this is, because
    a device that is busy for long may run slower than in a burst.
    """
    columns = 4096
    matrix = torch.empty(max(1, nbytes // (2 * columns)), columns, dtype=torch.bfloat16, device=device).normal_()
    vector = torch.ones(columns, dtype=torch.bfloat16, device=device)
    wide = matrix.view(torch.float32)  # two numbers side by side read as one: of the first one's size, never NaN
    passes = {"sum": wide.sum, "maximum": wide.amax, "product": lambda: matrix.mv(vector)}
    nbytes = matrix.numel() * matrix.element_size()
    found: dict[str, float] = {}
    for name, one in passes.items():
        calls = max(4, round(seconds / median_of(one, device, rounds=1, calls=4)))
        found[name] = nbytes / median_of(one, device, rounds=rounds, calls=calls)
    return found

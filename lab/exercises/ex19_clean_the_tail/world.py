"""The buffer around ``clean``: poisoned, partly written, and looked at afterwards. Does not: judge what it sees."""

from collections.abc import Callable
from typing import Any

import numpy as np

POISON = -7


def run(function: Callable[..., Any], case: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of each plane after the call, flattened to one list a plane."""
    capacity, live = case["capacity"], case["live"]
    shape = (capacity,) if case["planes"] == 1 else (case["planes"], 1, capacity)
    memory = np.full(shape, POISON, dtype=np.int32)
    memory[..., :live] = np.arange(1, live + 1)
    function(memory, live, case["bucket"], case["previous"])
    return {"planes": memory.reshape(-1, capacity).tolist()}

"""The device around ``advance``: five buffers, three operations, a count of each, and a model that samples.

Does not: judge what it sees.
"""

from collections.abc import Callable
from typing import Any


class Device:
    """Buffers by name, written in place only."""

    def __init__(self, case: dict[str, Any]) -> None:
        """Begin as the last step left them."""
        self.buffers: dict[str, list[int]] = {
            "tokens": list(case["tokens"]),
            "positions": list(case["positions"]),
            "lengths": [at + 1 for at in case["positions"]],
            "slots": list(case["slots"]),
            "samples": list(case["samples"]),
        }
        self.operations: list[str] = []

    def add(self, name: str, count: int, amount: int) -> None:
        """Add to the first entries."""
        self.operations.append("add")
        buffer = self.buffers[name]
        for at in range(count):
            buffer[at] += amount

    def gather(self, target: str, source: str, index: str, count: int) -> None:
        """Fill the first entries by index."""
        self.operations.append("gather")
        indices, values = self.buffers[index], self.buffers[source]
        for at in range(count):
            self.buffers[target][at] = values[indices[at]]

    def send(self, name: str, values: list[int]) -> None:
        """Copy a list from the host."""
        self.operations.append("send")
        self.buffers[name][: len(values)] = values

    def sample(self) -> None:
        """Let every slot have a new sample, as a model would between two steps."""
        self.buffers["samples"] = [(value * 7 + 3) % 101 for value in self.buffers["samples"]]


def run(function: Callable[..., Any], case: dict[str, Any]) -> dict[str, Any]:
    """Return the buffers after each step, and the operations of the last one."""
    device = Device(case)
    seen: list[list[list[int]]] = []
    for _ in range(case["steps"]):
        device.operations.clear()
        function(device, case["count"])
        seen.append([list(device.buffers[name]) for name in ("tokens", "positions", "lengths")])
        device.sample()
    return {"steps": seen, "operations": sorted(device.operations)}

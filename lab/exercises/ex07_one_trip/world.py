"""The device around ``upload``: buffers that only copies write, and a count of the copies.

Does not: judge what it sees.
"""

from collections.abc import Callable
from typing import Any


class Pinned:
    """Pinned host memory."""

    def __init__(self, values: list[int]) -> None:
        """Hold a copy of the values."""
        self.values = list(values)


class Device:
    """Buffers by name, and the copies that wrote them."""

    def __init__(self) -> None:
        """Begin empty."""
        self.buffers: dict[str, dict[int, int]] = {}
        self.copies: list[str] = []
        self.num_pinned = 0

    def pin(self, values: list[int]) -> Pinned:
        """Make pinned memory that holds the values."""
        self.num_pinned += 1
        return Pinned(values)

    def copy(self, name: str, offset: int, pinned: Pinned) -> None:
        """Copy pinned memory into a buffer. Raises: TypeError for memory that is not pinned."""
        if not isinstance(pinned, Pinned):
            message = f"copy takes pinned memory (device.pin(values)), got {type(pinned).__name__}"
            raise TypeError(message)
        self.copies.append(name)
        target = self.buffers.setdefault(name, {})
        target.update({offset + at: value for at, value in enumerate(pinned.values)})


def run(function: Callable[..., Any], case: dict[str, Any]) -> dict[str, Any]:
    """Return what the buffers hold and which copies were made."""
    device = Device()
    function(device, case["requests"])
    held = {
        name: [values.get(at, -1) for at in range(max(values) + 1)] if values else []
        for name, values in device.buffers.items()
    }
    return {"buffers": sorted(held.items()), "copies": sorted(device.copies)}

"""The device around ``send_all``: copies that read their source late, events, and a record of who waited.

Does not: judge what it sees.
"""

from collections.abc import Callable
from typing import Any


class Mirror:
    """Pinned memory that the host writes and the device reads later."""

    def __init__(self) -> None:
        """Begin empty."""
        self.values: list[int] = []

    def write(self, values: list[int]) -> None:
        """Fill the memory."""
        self.values = list(values)


class Event:
    """The end of one copy."""

    def __init__(self, device: "Device", number: int) -> None:
        """Remember which copy it is."""
        self._device = device
        self._number = number

    def wait(self) -> None:
        """Let the device work until this copy is done."""
        device = self._device
        if device.num_done <= self._number:
            device.stalls.append(device.num_started - 1 - self._number)
        while device.num_done <= self._number:
            device.do_next()


class Device:
    """Copies in order; each reads its mirror only when it is done, ``lag`` copies later or when it is waited for."""

    def __init__(self, lag: int) -> None:
        """Begin idle."""
        self._lag = lag
        self._queue: list[Mirror] = []
        self.received: list[list[int]] = []
        self.num_started = 0
        self.num_mirrors = 0
        self.stalls: list[int] = []  # for each wait that had to wait: how many copies were started after that one

    @property
    def num_done(self) -> int:
        """Copies that have read their memory."""
        return len(self.received)

    def mirror(self) -> Mirror:
        """Make a mirror."""
        self.num_mirrors += 1
        return Mirror()

    def copy(self, mirror: Mirror) -> Event:
        """Start a copy."""
        self._queue.append(mirror)
        self.num_started += 1
        while len(self._queue) > self._lag:
            self.do_next()
        return Event(self, self.num_started - 1)

    def do_next(self) -> None:
        """Do the oldest copy."""
        self.received.append(self._queue.pop(0).values)

    def finish(self) -> None:
        """Do all that is left."""
        while self._queue:
            self.do_next()


def run(function: Callable[..., Any], case: dict[str, Any]) -> dict[str, Any]:
    """Return what arrived, how many mirrors were made, and which waits held the host up."""
    device = Device(case["lag"])
    function(device, case["lists"])
    device.finish()
    return {"received": device.received, "mirrors": device.num_mirrors, "stalls": device.stalls}

"""When may I reuse the source: the start of an answer. Does not: answer."""

from typing import Any


def send_all(device: Any, lists: list[list[int]]) -> None:
    """Send every list to the device, through a few mirrors."""
    raise NotImplementedError

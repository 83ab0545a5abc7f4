"""One trip, not N: the start of an answer. Does not: answer."""

from typing import Any


def upload(device: Any, requests: list[dict[str, list[int]]]) -> None:
    """Bring the tokens and positions of all requests to the device."""
    raise NotImplementedError

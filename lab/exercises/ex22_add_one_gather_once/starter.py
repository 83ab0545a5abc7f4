"""Add one, gather once: the start of an answer. Does not: answer."""

from typing import Any


def advance(device: Any, count: int) -> None:
    """Bring the first rows forward by one step."""
    raise NotImplementedError

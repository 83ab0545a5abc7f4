"""Clean the tail: the start of an answer. Does not: answer."""

from typing import Any


def clean(buffer: Any, live: int, bucket: int, previous: int) -> None:
    """Clear the rows that the graph reads and the step has not written."""
    raise NotImplementedError

"""Build the dummy: the start of an answer. Does not: answer."""

from typing import Any


def pad_batch(
    batch: list[dict[str, Any]], size: int, reserved: dict[str, int] | None, free: list[int]
) -> dict[str, Any]:
    """Return the rows of the padded step and the free blocks afterwards."""
    raise NotImplementedError

"""Three lengths: the start of an answer. Does not: answer."""

from typing import Any


def three_lengths(batch: list[dict[str, Any]], extra: int) -> dict[str, list[int]]:
    """Return query, cached, kv and offsets."""
    raise NotImplementedError

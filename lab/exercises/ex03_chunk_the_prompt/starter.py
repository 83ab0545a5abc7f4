"""Chunk the prompt: the start of an answer. Does not: answer."""

from typing import Any


def cut(prompt: int, cached: int, rows: int, unit: int) -> list[list[Any]]:
    """Return the chunks as [start, length, is_last]."""
    raise NotImplementedError

"""Gather ids: the start of an answer. Does not: answer."""

from typing import Any


def logit_rows(batch: list[dict[str, Any]]) -> list[int]:
    """Return the rows whose logits are wanted."""
    raise NotImplementedError

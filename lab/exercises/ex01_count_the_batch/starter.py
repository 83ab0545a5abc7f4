"""Count the batch: the start of an answer. Does not: answer."""

from typing import Any


def tally(chunks: list[int], drafts: list[int], beams: list[int]) -> dict[str, Any]:
    """Return tokens, sequences and lengths of the step."""
    raise NotImplementedError

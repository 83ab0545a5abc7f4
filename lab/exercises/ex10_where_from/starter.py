"""Where does this token come from: the start of an answer. Does not: answer."""

from typing import Any


def fill(rows: list[dict[str, Any]], samples: list[int], pad: int) -> dict[str, list[int]]:
    """Return the tokens of the flat step and the slots that were read."""
    raise NotImplementedError

"""Pack three worlds: the start of an answer. Does not: answer."""

from typing import Any


def lay_out(
    contexts: list[dict[str, Any]], verifies: list[dict[str, Any]], decodes: list[dict[str, Any]]
) -> dict[str, list[int]]:
    """Return tokens, positions, owners and lengths of the flat step."""
    raise NotImplementedError

"""Write the graph key: the start of an answer. Does not: answer."""

from typing import Any


def graph_key(step: dict[str, Any]) -> list[Any] | None:
    """Return [requests, drafts, sampler, beams], or None."""
    raise NotImplementedError

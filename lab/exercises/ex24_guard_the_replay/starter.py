"""Guard the replay: the start of an answer. Does not: answer."""

from typing import Any


def refusals(captured: dict[str, Any] | None, now: dict[str, Any]) -> list[str]:
    """Return the reasons against a replay."""
    raise NotImplementedError

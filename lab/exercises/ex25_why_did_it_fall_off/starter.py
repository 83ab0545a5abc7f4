"""Why did it fall off: the start of an answer. Does not: answer."""

from typing import Any


def diagnose(step: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return the reason and the smallest change."""
    raise NotImplementedError

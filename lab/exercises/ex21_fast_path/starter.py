"""May I take the fast path: the start of an answer. Does not: answer."""

from typing import Any


def may_advance(last: dict[str, Any] | None, now: dict[str, Any]) -> bool:
    """Return whether this step may be derived from the last one."""
    raise NotImplementedError

"""Slot mapping: the start of an answer. Does not: answer."""


def slots(positions: list[int], row: list[int], valid: int, shared: int, block_size: int) -> list[int] | None:
    """Return the slot of each position, or None."""
    raise NotImplementedError

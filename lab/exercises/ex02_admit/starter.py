"""Admit under three budgets: the start of an answer. Does not: answer."""


def admit(queue: list[dict[str, int]], rows: int, places: int, blocks: int, block_size: int) -> list[int]:
    """Return the ids of the requests that are admitted, in order."""
    raise NotImplementedError

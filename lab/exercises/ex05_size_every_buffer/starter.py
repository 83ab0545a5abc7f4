"""Size every buffer: the start of an answer. Does not: answer."""


def capacities(
    *, requests: int, rows: int, longest: int, block_size: int, most_drafts: int, most_beams: int
) -> dict[str, int]:
    """Return the entries that each buffer must hold."""
    raise NotImplementedError

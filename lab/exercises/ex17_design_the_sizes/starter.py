"""Design the list of sizes: the start of an answer. Does not: answer."""


def choose_sizes(histogram: list[list[int]], limit: int, most: int, graph_cost: int, align: int) -> list[int]:
    """Return the sizes to capture, ascending."""
    raise NotImplementedError

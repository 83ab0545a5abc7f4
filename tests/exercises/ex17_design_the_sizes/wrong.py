"""Wrong in ways that people are."""


def _unit(align):
    return align if RULE == "b" else 1


def powers_of_two(histogram, limit, most, graph_cost, align):
    """takes powers of two, whatever the traffic is"""
    powers = [_unit(align) << n for n in range(12) if _unit(align) << n < limit]
    return [*powers[: most - 1], limit]


def evenly_spread(histogram, limit, most, graph_cost, align):
    """spreads the sizes evenly, whatever the traffic is"""
    unit = _unit(align)
    sizes = {limit * k // most // unit * unit for k in range(1, most)} - {0, limit}
    return [*sorted(sizes), limit]


def only_the_limit(histogram, limit, most, graph_cost, align):
    """captures the limit alone and pads everything to it"""
    return [limit]


def the_most_frequent(histogram, limit, most, graph_cost, align):
    """takes the most frequent batches, without looking at what lies between them"""
    unit = _unit(align)
    often = sorted(histogram, key=lambda entry: (-entry[1], entry[0]))
    sizes = {-(-batch // unit) * unit for batch, _ in often[: most - 1]}
    return [*sorted(size for size in sizes if size < limit), limit]


def ends_at_the_traffic(histogram, limit, most, graph_cost, align):
    """ends at the largest batch that occurred, so that a larger one has no graph"""
    batches = sorted(batch for batch, _ in histogram)
    return batches[-most:]


def every_size_is_free(histogram, limit, most, graph_cost, align):
    """forgets that each size costs something and takes as many as are allowed"""
    unit = _unit(align)
    sizes = [size for size in range(unit, limit, unit)]
    return [*sizes[: most - 1], limit] if len(sizes) >= most - 1 else [*sizes, limit]


def too_many(histogram, limit, most, graph_cost, align):
    """takes every batch that occurred and pays no heed to how many sizes are allowed"""
    unit = _unit(align)
    sizes = {-(-batch // unit) * unit for batch, _ in histogram}
    return [*sorted(size for size in sizes if size < limit), limit]

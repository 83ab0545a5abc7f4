"""Right in other ways."""


def by_unrolling(positions, row, valid, shared, block_size):
    flat = []
    for column, block in enumerate(row[:valid]):
        for place in range(block_size):
            flat.append(block * block_size + place if column >= shared else -1)
    if any(at >= len(flat) for at in positions):
        return None
    out = [flat[at] for at in positions]
    return None if RULE == "a" and -1 in out else out


def with_bounds_first(positions, row, valid, shared, block_size):
    low = shared * block_size
    if max(positions) >= valid * block_size:
        return None
    if RULE == "a" and min(positions) < low:
        return None
    return [row[at // block_size] * block_size + at % block_size if at >= low else -1 for at in positions]


def with_errors(positions, row, valid, shared, block_size):
    own = dict(enumerate(row[:valid]))
    try:
        pairs = [(own[at // block_size], at) for at in positions]
    except KeyError:
        return None
    result = []
    for block, at in pairs:
        if at // block_size < shared:
            if RULE == "a":
                return None
            result.append(-1)
        else:
            result.append(block * block_size + at - at // block_size * block_size)
    return result

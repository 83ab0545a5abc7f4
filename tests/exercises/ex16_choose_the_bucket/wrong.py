"""Wrong in ways that people are."""


def rounds_down(sizes, batch):
    """rounds down to the size below, so that requests are left out"""
    if batch == 0:
        return None if RULE == "a" else min(sizes)
    return max((size for size in sizes if size <= batch), default=min(sizes))


def takes_the_nearest(sizes, batch):
    """takes the nearest size, even when it is too small"""
    if batch == 0:
        return None if RULE == "a" else min(sizes)
    return min(sizes, key=lambda size: (abs(size - batch), size))


def always_the_largest(sizes, batch):
    """always pads to the largest size"""
    if batch == 0:
        return None if RULE == "a" else min(sizes)
    return max(sizes) if batch <= max(sizes) else None


def pads_an_exact_hit(sizes, batch):
    """looks for a size above the batch, and so pads a batch that already has its size"""
    if batch == 0:
        return None if RULE == "a" else min(sizes)
    return min((size for size in sizes if size > batch), default=None)


def first_that_fits(sizes, batch):
    """takes the first size in the list that fits, as if the list were sorted"""
    if batch == 0:
        return None if RULE == "a" else min(sizes)
    return next((size for size in sizes if size >= batch), None)


def largest_when_too_many(sizes, batch):
    """falls back to the largest size when the batch is too large for every graph"""
    if batch == 0:
        return None if RULE == "a" else min(sizes)
    return min((size for size in sizes if size >= batch), default=max(sizes))


def forgets_the_empty_batch(sizes, batch):
    """treats an empty batch as the other version of the rule does"""
    if batch == 0:
        return None if RULE == "b" else min(sizes)
    return min((size for size in sizes if size >= batch), default=None)

"""Right in other ways."""

import bisect


def by_bisection(sizes, batch):
    if RULE == "a" and not batch:
        return None
    ordered = sorted(set(sizes))
    at = bisect.bisect_left(ordered, batch)
    return ordered[at] if at < len(ordered) else None


def by_loop(sizes, batch):
    if RULE == "a" and batch < 1:
        return None
    best = None
    for size in sizes:
        if size >= batch and (best is None or size < best):
            best = size
    return best


def by_counting_up(sizes, batch):
    if RULE == "a" and batch == 0:
        return None
    if max(sizes) < batch:
        return None
    while batch not in sizes:
        batch += 1
    return batch

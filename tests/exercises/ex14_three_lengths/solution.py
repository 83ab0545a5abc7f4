"""The solution of *Three lengths*."""

import itertools


def three_lengths(batch, extra):
    query, cached, kv = [], [], []
    for one in batch:
        is_context = one["kind"] == "context"
        query.append(one["take"] if is_context else 1 + one["drafts"])
        cached.append(one["done"] if is_context else one["known"] - 1)
        kv.append(query[-1] + cached[-1] + (0 if is_context or RULE == "a" else extra))
    return {"query": query, "cached": cached, "kv": kv, "offsets": [0, *itertools.accumulate(query)]}

"""The solution of *Count the batch*."""

import itertools


def tally(chunks, drafts, beams):
    rows = [*chunks, *(1 + k for k in drafts), *([1] * sum(beams))]
    lengths = rows if RULE == "a" else [0, *itertools.accumulate(rows)]
    return {"tokens": sum(rows), "sequences": len(rows), "lengths": lengths}

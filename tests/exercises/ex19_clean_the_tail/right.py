"""Right in other ways."""

import numpy as np


def with_fill(buffer, live, bucket, previous):
    stop = max(bucket, previous) if RULE == "b" else bucket
    buffer[..., live:stop].fill(0)


def row_by_row(buffer, live, bucket, previous):
    rows = np.moveaxis(buffer, -1, 0)
    for at in range(live, bucket):
        rows[at] = 0
    if RULE == "b":
        for at in range(bucket, previous):
            if at >= live:
                rows[at] = 0


def by_multiplying(buffer, live, bucket, previous):
    keep = np.ones(buffer.shape[-1], dtype=buffer.dtype)
    keep[live:bucket] = 0
    if RULE == "b":
        keep[max(live, bucket) : previous] = 0
    np.multiply(buffer, keep, out=buffer)

"""Right in other ways."""

import math


def with_totals(queue, rows, places, blocks, block_size):
    best = 0
    for count in range(len(queue) + 1):
        front = queue[:count]
        needs = sum(math.ceil((r["prompt"] + r["most"] - (RULE == "a")) / block_size) for r in front)
        fits = sum(r["prompt"] + r["generated"] for r in front) <= rows and count <= places and needs <= blocks
        if not fits:
            break
        best = count
    return [r["id"] for r in queue[:best]]


def by_recursion(queue, rows, places, blocks, block_size):
    if not queue or places == 0:
        return []
    first, rest = queue[0], queue[1:]
    last = first["prompt"] + first["most"] - 1 - (RULE == "a")
    rows -= first["prompt"] + first["generated"]
    blocks -= last // block_size + 1
    if rows < 0 or blocks < 0:
        return []
    return [first["id"], *by_recursion(rest, rows, places - 1, blocks, block_size)]


def with_counters(queue, rows, places, blocks, block_size):
    spent_rows = spent_blocks = 0
    out = []
    for r in queue:
        tokens = r["prompt"] + r["most"]
        if RULE == "a":
            tokens -= 1
        spent_rows += r["prompt"] + r["generated"]
        spent_blocks += -(-tokens // block_size)
        if spent_rows > rows or spent_blocks > blocks or len(out) >= places:
            return out
        out.append(r["id"])
    return out

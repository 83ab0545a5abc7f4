"""Right in other ways."""

import math


def with_ceil(requests, rows, longest, block_size, most_drafts, most_beams):
    wanted = most_beams if most_beams > most_drafts else most_drafts + 1
    width = math.ceil((longest - (RULE == "b")) / block_size)
    gather = wanted * requests
    return {
        "tokens": rows,
        "gather": min(rows, gather),
        "lengths": min(most_beams * requests, rows),
        "table_width": width,
    }


def by_filling(requests, rows, longest, block_size, most_drafts, most_beams):
    def fill(one):
        total = 0
        for _ in range(requests):
            total = min(rows, total + one)
        return total

    columns = 0
    while columns * block_size < longest - (0 if RULE == "a" else 1):
        columns += 1
    return {
        "tokens": rows,
        "gather": max(fill(1 + most_drafts), fill(most_beams)),
        "lengths": fill(most_beams),
        "table_width": columns,
    }


def with_last_position(requests, rows, longest, block_size, most_drafts, most_beams):
    last = longest - 1 if RULE == "a" else longest - 2
    return {
        "table_width": last // block_size + 1,
        "lengths": sorted([rows, requests * most_beams])[0],
        "gather": sorted([rows, requests * sorted([1 + most_drafts, most_beams])[1]])[0],
        "tokens": rows,
    }

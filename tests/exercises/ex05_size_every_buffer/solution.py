"""The solution of *Size every buffer*."""


def capacities(requests, rows, longest, block_size, most_drafts, most_beams):
    kept = longest if RULE == "a" else longest - 1
    return {
        "tokens": rows,
        "gather": min(rows, requests * max(1 + most_drafts, most_beams)),
        "lengths": min(rows, requests * most_beams),
        "table_width": -(-kept // block_size),
    }

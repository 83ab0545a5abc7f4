"""Right in other ways."""


def by_appending(chunks, drafts, beams):
    rows = list(chunks)
    for k in drafts:
        rows.append(k + 1)
    for width in beams:
        rows.extend([1] * width)
    tokens = 0
    starts = [0]
    for count in rows:
        tokens += count
        starts.append(tokens)
    return {"tokens": tokens, "sequences": len(rows), "lengths": rows if RULE == "a" else starts}


def by_formula(chunks, drafts, beams):
    tokens = sum(chunks) + sum(drafts) + len(drafts) + sum(beams)
    sequences = len(chunks) + len(drafts) + sum(beams)
    rows = chunks + [k + 1 for k in drafts] + [1 for width in beams for _ in range(width)]
    if RULE == "b":
        rows = [sum(rows[:at]) for at in range(len(rows) + 1)]
    return {"tokens": tokens, "sequences": sequences, "lengths": rows}


def with_tuples(chunks, drafts, beams):
    rows = tuple(chunks) + tuple(map((1).__add__, drafts)) + (1,) * sum(beams)
    ends = [0]
    for count in rows:
        ends.append(ends[-1] + count)
    return {"lengths": rows if RULE == "a" else tuple(ends), "tokens": ends[-1], "sequences": len(ends) - 1}

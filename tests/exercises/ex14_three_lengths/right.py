"""Right in other ways."""


def with_comprehensions(batch, extra):
    query = [one["take"] if "take" in one else one["drafts"] + 1 for one in batch]
    cached = [one["done"] if "done" in one else one["known"] - 1 for one in batch]
    more = [extra if RULE == "b" and one["kind"] != "context" else 0 for one in batch]
    return {
        "offsets": [sum(query[:at]) for at in range(len(query) + 1)],
        "kv": [a + b + c for a, b, c in zip(query, cached, more, strict=True)],
        "cached": cached,
        "query": query,
    }


def from_the_end(batch, extra):
    rows = []
    for one in batch:
        if one["kind"] == "context":
            end = one["done"] + one["take"]
            rows.append((one["take"], end, end))
        else:
            end = one["known"] + one["drafts"]
            rows.append((1 + one["drafts"], end, end + (extra if RULE == "b" else 0)))
    offsets = [0]
    for n, _, _ in rows:
        offsets.append(offsets[-1] + n)
    return {
        "query": [n for n, _, _ in rows],
        "cached": [end - n for n, end, _ in rows],
        "kv": [kv for _, _, kv in rows],
        "offsets": offsets,
    }


def with_a_dictionary(batch, extra):
    out = {"query": [], "cached": [], "kv": [], "offsets": [0]}
    for one in batch:
        match one:
            case {"kind": "context", "done": done, "take": take}:
                q, c, e = take, done, 0
            case {"known": known, "drafts": drafts}:
                q, c, e = drafts + 1, known - 1, (extra if RULE == "b" else 0)
        out["query"].append(q)
        out["cached"].append(c)
        out["kv"].append(q + c + e)
        out["offsets"].append(out["offsets"][-1] + q)
    return out

"""Right in other ways."""


def with_all(contexts, graphs_on, num_drafts):
    open_gate = graphs_on and num_drafts == 0
    if open_gate and all(c["take"] == 1 and c["prompt"] - c["done"] == 1 for c in contexts):
        if RULE == "b":
            contexts = sorted(contexts, key=lambda c: (c["done"], c["id"]))
        return [(c["id"], c["done"]) for c in contexts]
    return []


def by_loop(contexts, graphs_on, num_drafts):
    rows = []
    if graphs_on and not num_drafts:
        for c in contexts:
            left = c["prompt"] - c["done"]
            if left != 1 or c["take"] != left:
                return []
            rows.append([c["id"], c["prompt"] - 1])
    if RULE == "b":
        rows.sort()
        rows.sort(key=lambda row: row[1])
    return rows


def by_counting(contexts, graphs_on, num_drafts):
    if (not graphs_on) or num_drafts > 0:
        return []
    ends = sum(c["done"] + c["take"] == c["prompt"] for c in contexts)
    tokens = sum(c["take"] for c in contexts)
    if not (ends == tokens == len(contexts)):
        return []
    pairs = [(c["done"], c["id"]) for c in contexts]
    return [[b, a] for a, b in (pairs if RULE == "a" else sorted(pairs))]

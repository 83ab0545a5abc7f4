"""Right in other ways."""

import operator


def by_appending(contexts, verifies, decodes):
    out = {"tokens": [], "positions": [], "owners": [], "lengths": []}

    def add(owner, tokens, at):
        out["lengths"].append(len(tokens))
        for token in tokens:
            out["tokens"].append(token)
            out["positions"].append(at)
            out["owners"].append(owner)
            at += 1

    for one in contexts:
        add(one["id"], one["chunk"], one["start"])
    for one in verifies:
        add(one["id"], [one["newest"]] + one["drafts"], one["known"] - 1)
    for one in sorted(decodes, key=operator.itemgetter("id")) if RULE == "b" else decodes:
        add(one["id"], [one["newest"]], one["known"] - 1)
    return out


def as_one_group(contexts, verifies, decodes):
    last = list(decodes)
    if RULE == "b":
        last.sort(key=lambda r: r["id"])
    rows = []
    lengths = []
    for r in [*contexts, *verifies, *last]:
        tokens = r.get("chunk") or [r["newest"], *r.get("drafts", ())]
        first = r["start"] if "start" in r else r["known"] - 1
        rows.extend((token, first + k, r["id"]) for k, token in enumerate(tokens))
        lengths.append(len(tokens))
    tokens, positions, owners = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    return {"lengths": lengths, "owners": owners, "positions": positions, "tokens": tokens}


def with_ranges(contexts, verifies, decodes):
    ordered = decodes if RULE == "a" else [d for _, d in sorted((d["id"], d) for d in decodes)]
    tokens, positions, owners, lengths = [], [], [], []
    for c in contexts:
        tokens += c["chunk"]
        positions += range(c["start"], c["start"] + len(c["chunk"]))
        owners += [c["id"]] * len(c["chunk"])
        lengths.append(len(c["chunk"]))
    for v in verifies:
        n = 1 + len(v["drafts"])
        tokens += [v["newest"], *v["drafts"]]
        positions += range(v["known"] - 1, v["known"] - 1 + n)
        owners += [v["id"]] * n
        lengths.append(n)
    tokens += [d["newest"] for d in ordered]
    positions += [d["known"] - 1 for d in ordered]
    owners += [d["id"] for d in ordered]
    lengths += [1] * len(ordered)
    return {"tokens": tokens, "positions": positions, "owners": owners, "lengths": lengths}

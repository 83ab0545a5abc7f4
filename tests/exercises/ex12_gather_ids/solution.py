"""The solution of *Gather ids*."""


def logit_rows(batch):
    found, row = [], 0
    for one in batch:
        count = one["rows"] if one["kind"] == "chunk" else 1 + one.get("drafts", 0)
        wanted = count
        if one["kind"] == "chunk" and not (RULE == "b" and one["scores"]):
            wanted = 1 if one["last"] else 0
        row += count
        found += range(row - wanted, row)
    return found

"""Right in other ways."""


def with_flags(batch):
    flags = []
    for one in batch:
        if one["kind"] == "chunk":
            every = one["scores"] and RULE == "b"
            flags += [every] * (one["rows"] - 1) + [every or one["last"]]
        else:
            flags += [True] * (1 + (one["drafts"] if one["kind"] == "verify" else 0))
    return [row for row, flag in enumerate(flags) if flag]


def with_cases(batch):
    rows, out = 0, []
    for one in batch:
        match one["kind"]:
            case "decode":
                out.append(rows)
                rows += 1
            case "verify":
                for _ in range(one["drafts"] + 1):
                    out.append(rows)
                    rows += 1
            case _:
                if RULE == "b" and one["scores"]:
                    out.extend(range(rows, rows + one["rows"]))
                elif one["last"]:
                    out.append(rows + one["rows"] - 1)
                rows += one["rows"]
    return out


def by_recursion(batch, first=0):
    if not batch:
        return []
    head, *tail = batch
    size = head.get("rows", head.get("drafts", 0) + 1)
    begin = first
    if "rows" in head and not (head["scores"] and RULE == "b"):
        begin = first + size - (1 if head["last"] else 0)
    return list(range(begin, first + size)) + by_recursion(tail, first + size)

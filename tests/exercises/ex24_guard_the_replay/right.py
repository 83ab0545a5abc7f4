"""Right in other ways."""


def _all(captured, now):
    if captured is None:
        yield "not captured"
        return
    if captured["metadata"] != now["metadata"]:
        yield "metadata"
    old, new = captured["inputs"], now["inputs"]
    if set(old) - set(new):
        yield "missing"
    if set(new) - set(old):
        yield "unknown"
    shared = set(old) & set(new)
    for field in ("address", "shape", "dtype"):
        if any(old[name][field] != new[name][field] for name in shared):
            yield field
    if now["table_width"] > captured["table_width"] or not all(new[name]["written"] for name in shared):
        yield "stale"


def with_a_generator(captured, now):
    reasons = list(_all(captured, now))
    return reasons if RULE == "b" else reasons[:1]


def by_appending(captured, now):
    out = []

    def add(reason, holds):
        if holds and (RULE == "b" or not out):
            out.append(reason)

    if captured is None:
        return ["not captured"]
    names = [name for name in captured["inputs"] if name in now["inputs"]]
    add("metadata", captured["metadata"] != now["metadata"])
    add("missing", len(names) < len(captured["inputs"]))
    add("unknown", len(names) < len(now["inputs"]))
    for field in ["address", "shape", "dtype"]:
        add(field, [captured["inputs"][n][field] for n in names] != [now["inputs"][n][field] for n in names])
    is_old = sum(1 for n in names if not now["inputs"][n]["written"])
    add("stale", is_old > 0 or now["table_width"] - captured["table_width"] > 0)
    return out


def with_a_set(captured, now):
    order = ["metadata", "missing", "unknown", "address", "shape", "dtype", "stale"]
    if not captured:
        return ["not captured"]
    seen = set()
    if captured["metadata"] is not now["metadata"] and captured["metadata"] != now["metadata"]:
        seen.add("metadata")
    for name in [*captured["inputs"], *now["inputs"]]:
        a, b = captured["inputs"].get(name), now["inputs"].get(name)
        if b is None:
            seen.add("missing")
        elif a is None:
            seen.add("unknown")
        else:
            seen.update(field for field in a if a[field] != b[field])
            if not b["written"]:
                seen.add("stale")
    if now["table_width"] > captured["table_width"]:
        seen.add("stale")
    ordered = sorted(seen, key=order.index)
    return ordered[: 1 if RULE == "a" else len(ordered)]

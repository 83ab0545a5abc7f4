"""Right in other ways."""


def by_appending(batch, size, reserved, free):
    rows = list(batch)
    while len(rows) < size:
        if reserved is None:
            return {"rows": {"a": batch, "b": None}[RULE], "free": free}
        dummy = {"id": -1, "slot": reserved["slot"], "block": reserved["block"], "position": 0, "is_dummy": True}
        rows.append(dummy)
    return {"rows": rows, "free": free}


def one_object(batch, size, reserved, free):
    out = {"free": list(free), "rows": batch}
    if len(batch) == size:
        return out
    if reserved:
        dummy = dict(id=-1, position=0, is_dummy=True)
        dummy.update(reserved)
        out["rows"] = batch + [dummy] * (size - len(batch))
    elif RULE == "b":
        out["rows"] = None
    return out


def with_range(batch, size, reserved, free):
    if reserved is None and size > len(batch):
        return {"rows": None if RULE == "b" else [*batch], "free": free}
    rows = [
        batch[at]
        if at < len(batch)
        else {"id": -1, "slot": reserved["slot"], "block": reserved["block"], "position": 0, "is_dummy": True}
        for at in range(size)
    ]
    return {"rows": rows, "free": free}

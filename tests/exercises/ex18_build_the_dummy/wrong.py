"""Wrong in ways that people are."""


def _pad(batch, size, reserved, free, *, rule=None, **changed):
    missing = size - len(batch)
    if missing and reserved is None:
        return {"rows": batch if (rule or RULE) == "a" else None, "free": free}
    dummies = [{"id": -1, "position": 0, "is_dummy": True, **reserved, **changed} for _ in range(missing)]
    return {"rows": [*batch, *dummies], "free": free}


def takes_a_free_block(batch, size, reserved, free):
    """takes a free block for its dummies when it pads, and has none when the cache is full"""
    missing = size - len(batch)
    if not missing:
        return {"rows": batch, "free": free}
    if not free or reserved is None:
        return {"rows": batch if RULE == "a" else None, "free": free}
    dummies = [{"id": -1, "slot": reserved["slot"], "block": free[0], "position": 0, "is_dummy": True}] * missing
    return {"rows": batch + dummies, "free": free[1:]}


def copies_the_last_request(batch, size, reserved, free):
    """repeats the last request, whose block is then written twice"""
    if size > len(batch) and reserved is None:
        return _pad(batch, size, reserved, free)
    return {"rows": batch + [{**batch[-1], "is_dummy": True}] * (size - len(batch)), "free": free}


def writes_block_zero(batch, size, reserved, free):
    """lets its dummies write block 0, as if that were nobody's"""
    return _pad(batch, size, reserved, free, block=0)


def does_not_say_so(batch, size, reserved, free):
    """adds rows that do not say that they are dummies"""
    return _pad(batch, size, reserved, free, is_dummy=False)


def drops_what_looks_like_one(batch, size, reserved, free):
    """takes a request with the id 0 or without a slot for a dummy, and drops it"""
    return _pad([row for row in batch if row["id"] and row["slot"] is not None], size, reserved, free)


def one_dummy_only(batch, size, reserved, free):
    """adds one dummy, however many places are empty"""
    return _pad(batch, min(size, len(batch) + 1), reserved, free)


def dummies_first(batch, size, reserved, free):
    """puts the dummies before the real rows, which all move"""
    out = _pad(batch, size, reserved, free)
    if out["rows"] and len(out["rows"]) == size:
        out["rows"] = out["rows"][len(batch) :] + out["rows"][: len(batch)]
    return out


def refuses_otherwise(batch, size, reserved, free):
    """treats a missing reserve as the other version of the rule does"""
    return _pad(batch, size, reserved, free, rule="b" if RULE == "a" else "a")

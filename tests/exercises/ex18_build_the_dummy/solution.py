"""The solution of *Build the dummy*."""


def pad_batch(batch, size, reserved, free):
    missing = size - len(batch)
    if missing and reserved is None:
        return {"rows": batch if RULE == "a" else None, "free": free}
    dummies = [{"id": -1, "position": 0, "is_dummy": True, **reserved} for _ in range(missing)]
    return {"rows": [*batch, *dummies], "free": free}

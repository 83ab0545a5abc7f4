"""The solution of *May I take the fast path*."""


def may_advance(last, now):
    if last is None or last["warmup"] or last["contexts"] or last["drafts"] or last["padding"]:
        return False
    if now["warmup"] or now["contexts"] or now["drafts"] or not now["samples"]:
        return False
    if RULE == "b" and now["grown"]:
        return False
    return last["ids"] == now["ids"]

"""Right in other ways."""


def in_one_expression(last, now):
    return (
        last is not None
        and not any(last[name] for name in ("warmup", "contexts", "drafts", "padding"))
        and not any(now[name] for name in ("warmup", "contexts", "drafts"))
        and now["samples"]
        and last["ids"] == now["ids"]
        and not (RULE == "b" and bool(now["grown"]))
    )


def with_reasons(last, now):
    reasons = []
    if last is None:
        return False
    reasons += [f"last {name}" for name in last if name != "ids" and last[name]]
    reasons += [f"now {name}" for name in ("contexts", "drafts", "warmup") if now[name]]
    if not now["samples"]:
        reasons.append("no samples")
    if now["grown"] and RULE == "b":
        reasons.append("grown")
    if len(last["ids"]) != len(now["ids"]) or any(a != b for a, b in zip(last["ids"], now["ids"], strict=True)):
        reasons.append("requests")
    return not reasons


def by_comparing_records(last, now):
    if not last or not now["samples"]:
        return False
    quiet = {"contexts": 0, "drafts": 0, "warmup": False}
    before = {name: last[name] for name in quiet}
    after = {name: now[name] for name in quiet}
    if before != quiet or after != quiet or last["padding"] > 0:
        return False
    if RULE == "b" and len(now["grown"]) > 0:
        return False
    return tuple(last["ids"]) == tuple(now["ids"])

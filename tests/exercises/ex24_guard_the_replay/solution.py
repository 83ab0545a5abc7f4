"""The solution of *Guard the replay*."""


def refusals(captured, now):
    if captured is None:
        return ["not captured"]
    before, after = captured["inputs"], now["inputs"]
    both = [(before[name], after[name]) for name in before if name in after]
    found = {
        "metadata": captured["metadata"] != now["metadata"],
        "missing": any(name not in after for name in before),
        "unknown": any(name not in before for name in after),
        "address": any(a["address"] != b["address"] for a, b in both),
        "shape": any(a["shape"] != b["shape"] for a, b in both),
        "dtype": any(a["dtype"] != b["dtype"] for a, b in both),
        "stale": any(not b["written"] for _, b in both) or now["table_width"] > captured["table_width"],
    }
    reasons = [name for name, holds in found.items() if holds]
    return reasons[:1] if RULE == "a" else reasons

"""Wrong in ways that people are."""


def _guard(captured, now, *, skip=(), shape=None, contents=False, rule=None, stale=None, narrow=False):
    if captured is None:
        return [] if "not captured" in skip else ["not captured"]
    before, after = captured["inputs"], now["inputs"]
    both = [(before[name], after[name]) for name in before if name in after]
    shape = shape or (lambda a, b: a != b)
    is_wide = now["table_width"] > captured["table_width"] or (narrow and now["table_width"] < captured["table_width"])
    found = {
        "metadata": captured["metadata"] != now["metadata"],
        "missing": any(name not in after for name in before),
        "unknown": any(name not in before for name in after),
        "address": any(a["address"] != b["address"] for a, b in both),
        "shape": any(shape(a["shape"], b["shape"]) for a, b in both),
        "dtype": any(a["dtype"] != b["dtype"] for a, b in both),
        "stale": (any(not b["written"] for _, b in both) if stale is None else stale)
        or is_wide
        or (contents and any(b["contents"] != [1, 2] for _, b in both)),
    }
    reasons = [name for name, holds in found.items() if holds and name not in skip]
    return reasons[:1] if (rule or RULE) == "a" else reasons


def equal_is_enough(captured, now):
    """takes an equal metadata record for the same one, though the graph reads the old one's tensors"""
    return _guard(captured, now, skip=("metadata",))


def shorter_is_safe(captured, now):
    """lets a shorter input through, though the graph reads the old length"""
    return _guard(captured, now, shape=lambda a, b: len(a) != len(b) or a[-1] < b[-1] or a[:-1] != b[:-1])


def counts_entries(captured, now):
    """compares how many entries an input has, so that transposed positions pass"""

    def size(shape):
        total = 1
        for n in shape:
            total *= n
        return total

    return _guard(captured, now, shape=lambda a, b: size(a) != size(b))


def addresses_do_not_matter(captured, now):
    """compares what inputs are and not where they lie"""
    return _guard(captured, now, skip=("address",))


def contents_must_be_equal(captured, now):
    """refuses other contents, though replaying with other contents is the purpose"""
    return _guard(captured, now, contents=True)


def absent_is_fine(captured, now):
    """lets a missing input pass, and the graph reads what the last step left there"""
    return _guard(captured, now, skip=("missing",))


def unknown_is_fine(captured, now):
    """lets an input pass that no graph reads"""
    return _guard(captured, now, skip=("unknown",))


def does_not_ask_who_wrote(captured, now):
    """does not ask whether this step has written its inputs"""
    return _guard(captured, now, stale=False)


def refuses_narrow_tables(captured, now):
    """refuses a narrower block table, which is fine"""
    return _guard(captured, now, narrow=True)


def captures_on_the_way(captured, now):
    """lets a step through that has no graph, as if it could be captured on the way"""
    return _guard(captured, now, skip=("not captured",))


def how_many_otherwise(captured, now):
    """gives as many reasons as the other version of the rule wants"""
    return _guard(captured, now, rule="b" if RULE == "a" else "a")

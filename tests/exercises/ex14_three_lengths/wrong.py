"""Wrong in ways that people are."""


def _measure(batch, extra, *, query=None, cached=None, kv=None, offsets=None):
    q = [query(o) if query else (o["take"] if o["kind"] == "context" else 1 + o["drafts"]) for o in batch]
    c = [cached(o) if cached else (o["done"] if o["kind"] == "context" else o["known"] - 1) for o in batch]
    more = [extra if RULE == "b" and o["kind"] == "decode" else 0 for o in batch]
    k = [kv(o, a, b, e) if kv else a + b + e for o, a, b, e in zip(batch, q, c, more, strict=True)]
    return {"query": q, "cached": c, "kv": k, "offsets": offsets(q) if offsets else _sums(q)}


def _sums(values):
    out = [0]
    for value in values:
        out.append(out[-1] + value)
    return out


def one_length_for_all(batch, extra):
    """gives the kernel one length three times: that of the whole sequence"""
    whole = [o["done"] + o["take"] if o["kind"] == "context" else o["known"] + o["drafts"] for o in batch]
    return {"query": whole, "cached": whole, "kv": whole, "offsets": _sums(whole)}


def newest_is_cached(batch, extra):
    """counts the newest token as cached, though it is computed in this step"""
    return _measure(batch, extra, cached=lambda o: o["done"] if o["kind"] == "context" else o["known"])


def prompts_have_nothing_cached(batch, extra):
    """takes a prompt for new, whatever lies in the cache"""
    return _measure(batch, extra, cached=lambda o: 0 if o["kind"] == "context" else o["known"] - 1)


def attends_to_the_past_only(batch, extra):
    """lets a row attend to what was cached before, and not to the step itself"""
    return _measure(batch, extra, kv=lambda o, q, c, e: c + e)


def drafts_are_not_rows(batch, extra):
    """computes one row for a decode and forgets the drafts"""
    return _measure(batch, extra, query=lambda o: o["take"] if o["kind"] == "context" else 1)


def lengths_for_offsets(batch, extra):
    """gives lengths where the first row of each sequence is wanted"""
    return _measure(batch, extra, offsets=lambda q: [0, *q])


def no_last_offset(batch, extra):
    """leaves out the last offset, the number of all rows"""
    return _measure(batch, extra, offsets=lambda q: _sums(q)[: max(1, len(q))])


def extra_otherwise(batch, extra):
    """treats the extra tokens as the other version of the rule does"""
    return _measure(batch, extra, kv=lambda o, q, c, e: q + c + (extra if RULE == "a" and o["kind"] == "decode" else 0))

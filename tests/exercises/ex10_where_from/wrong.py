"""Wrong in ways that people are."""


def _fill(rows, samples, pad, *, slot_of=None, drafts=True, dummy=None):
    tokens, gathered = [], []
    for at, row in enumerate(rows):
        if row["dummy"] and dummy is None:
            tokens.append(0 if RULE == "a" else pad)
            continue
        if row["dummy"] and dummy == "swapped":
            tokens.append(0 if RULE == "b" else pad)
            continue
        slot = slot_of(at, row) if slot_of else row["sampled_at"]
        if slot is None:
            tokens.append(row["host"])
        else:
            tokens.append(samples[slot % len(samples)])
            gathered.append(slot)
        if drafts:
            tokens += row["drafts"]
    return {"tokens": tokens, "gathered": gathered}


def row_is_slot(rows, samples, pad):
    """reads the sample with the number of the row, as if nobody had left"""
    return _fill(rows, samples, pad, slot_of=lambda at, row: None if row["sampled_at"] is None else at)


def everybody_has_a_sample(rows, samples, pad):
    """reads a sample for newcomers too, who get their predecessor's"""
    return _fill(rows, samples, pad, slot_of=lambda at, row: at if row["sampled_at"] is None else row["sampled_at"])


def host_knows_all(rows, samples, pad):
    """takes every token from the host, which does not know the last samples"""
    return _fill(rows, samples, pad, slot_of=lambda at, row: None)


def in_order_of_arrival(rows, samples, pad):
    """hands the samples out one after the other, as if the slots were in the order of the rows"""
    count = iter(range(len(rows)))
    return _fill(rows, samples, pad, slot_of=lambda at, row: None if row["sampled_at"] is None else next(count))


def dummies_are_requests(rows, samples, pad):
    """treats a dummy as a request and reads or takes a token for it"""
    return _fill(rows, samples, pad, dummy="request")


def slot_zero_is_none(rows, samples, pad):
    """takes slot 0 for no slot"""
    return _fill(rows, samples, pad, slot_of=lambda at, row: row["sampled_at"] or None)


def drops_drafts(rows, samples, pad):
    """leaves the drafts out"""
    return _fill(rows, samples, pad, drafts=False)


def other_padding(rows, samples, pad):
    """fills dummies as the other version of the rule does"""
    return _fill(rows, samples, pad, dummy="swapped")

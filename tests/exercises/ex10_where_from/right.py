"""Right in other ways."""


def in_two_passes(rows, samples, pad):
    real = [row for row in rows if not row["dummy"]]
    gathered = [row["sampled_at"] for row in real if row["sampled_at"] is not None]
    tokens = []
    for row in rows:
        if row["dummy"]:
            tokens.append({"a": 0, "b": pad}[RULE])
            continue
        slot = row["sampled_at"]
        tokens.append(row["host"] if slot is None else samples[slot])
        tokens.extend(row["drafts"])
    return {"tokens": tokens, "gathered": gathered}


def with_a_function(rows, samples, pad):
    def first(row):
        if row["dummy"]:
            return pad if RULE == "b" else 0
        return samples[row["sampled_at"]] if row["sampled_at"] is not None else row["host"]

    return {
        "tokens": [t for row in rows for t in ([first(row)] + ([] if row["dummy"] else row["drafts"]))],
        "gathered": [r["sampled_at"] for r in rows if r["sampled_at"] is not None and not r["dummy"]],
    }


def with_a_table(rows, samples, pad):
    by_slot = dict(enumerate(samples))
    by_slot[None] = None
    tokens = []
    gathered = ()
    for row in rows:
        slot = None if row["dummy"] else row["sampled_at"]
        token = by_slot[slot]
        if token is None:
            token = row["host"] if not row["dummy"] else (0 if RULE == "a" else pad)
        else:
            gathered += (slot,)
        tokens.append(token)
        if not row["dummy"]:
            tokens += row["drafts"]
    return {"gathered": gathered, "tokens": tokens}

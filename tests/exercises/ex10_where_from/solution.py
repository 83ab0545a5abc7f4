"""The solution of *Where does this token come from*."""


def fill(rows, samples, pad):
    tokens, gathered = [], []
    for row in rows:
        if row["dummy"]:
            tokens.append(0 if RULE == "a" else pad)
        elif row["sampled_at"] is None:
            tokens += [row["host"], *row["drafts"]]
        else:
            gathered.append(row["sampled_at"])
            tokens += [samples[row["sampled_at"]], *row["drafts"]]
    return {"tokens": tokens, "gathered": gathered}

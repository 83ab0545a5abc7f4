"""The solution of *Pack three worlds*."""


def lay_out(contexts, verifies, decodes):
    if RULE == "b":
        decodes = sorted(decodes, key=lambda one: one["id"])
    rows = [(one["id"], one["chunk"], one["start"]) for one in contexts]
    rows += [(one["id"], [one["newest"], *one["drafts"]], one["known"] - 1) for one in verifies]
    rows += [(one["id"], [one["newest"]], one["known"] - 1) for one in decodes]
    return {
        "tokens": [token for _, tokens, _ in rows for token in tokens],
        "positions": [first + at for _, tokens, first in rows for at in range(len(tokens))],
        "owners": [owner for owner, tokens, _ in rows for _ in tokens],
        "lengths": [len(tokens) for _, tokens, _ in rows],
    }

"""Wrong in ways that people are."""


def _lay(rows):
    return {
        "tokens": [token for _, tokens, _ in rows for token in tokens],
        "positions": [first + at for _, tokens, first in rows for at in range(len(tokens))],
        "owners": [owner for owner, tokens, _ in rows for _ in tokens],
        "lengths": [len(tokens) for _, tokens, _ in rows],
    }


def _groups(contexts, verifies, decodes, *, newest=1, begin=lambda c: c["start"], drafts=lambda v: v["drafts"]):
    if RULE == "b":
        decodes = sorted(decodes, key=lambda one: one["id"])
    return (
        [(c["id"], c["chunk"], begin(c)) for c in contexts],
        [(v["id"], [v["newest"], *drafts(v)], v["known"] - newest) for v in verifies],
        [(d["id"], [d["newest"]], d["known"] - newest) for d in decodes],
    )


def newest_stands_one_further(contexts, verifies, decodes):
    """puts the newest token at the position after it, where the next one will stand"""
    one, two, three = _groups(contexts, verifies, decodes, newest=0)
    return _lay(one + two + three)


def chunks_begin_at_zero(contexts, verifies, decodes):
    """lets every chunk begin at position 0"""
    one, two, three = _groups(contexts, verifies, decodes, begin=lambda c: 0)
    return _lay(one + two + three)


def one_token_means_decode(contexts, verifies, decodes):
    """takes a context with a single token for a decode"""
    one, two, three = _groups(contexts, verifies, decodes)
    single = [row for row in one if len(row[1]) == 1]
    return _lay([row for row in one if len(row[1]) > 1] + two + single + three)


def decodes_come_first(contexts, verifies, decodes):
    """puts the decodes first"""
    one, two, three = _groups(contexts, verifies, decodes)
    return _lay(three + two + one)


def drafts_without_the_newest(contexts, verifies, decodes):
    """lays out the drafts without the newest token before them"""
    one, two, three = _groups(contexts, verifies, decodes)
    return _lay(one + [(owner, tokens[1:], first + 1) for owner, tokens, first in two] + three)


def drafts_at_one_position(contexts, verifies, decodes):
    """gives all drafts the position of the newest token"""
    one, two, three = _groups(contexts, verifies, decodes)
    out = _lay(one + two + three)
    at = out["lengths"][: len(one)]
    row = sum(at)
    for _, tokens, first in two:
        out["positions"][row : row + len(tokens)] = [first] * len(tokens)
        row += len(tokens)
    return out


def orders_decodes_otherwise(contexts, verifies, decodes):
    """orders the decodes as the other version of the rule does"""
    one, two, _ = _groups(contexts, verifies, [])
    chosen = sorted(decodes, key=lambda d: d["id"]) if RULE == "a" else decodes
    return _lay(one + two + [(d["id"], [d["newest"]], d["known"] - 1) for d in chosen])

"""Wrong in ways that people are."""


def _answer(rows, tokens=None):
    starts = [0]
    for count in rows:
        starts.append(starts[-1] + count)
    total = sum(rows) if tokens is None else tokens
    return {"tokens": total, "sequences": len(rows), "lengths": rows if RULE == "a" else starts}


def one_token_a_request(chunks, drafts, beams):
    """counts one token for each request, as if every request decoded"""
    return _answer([1] * (len(chunks) + len(drafts) + len(beams)))


def drafts_alone(chunks, drafts, beams):
    """counts the drafts but not the newest token that they follow"""
    return _answer([*chunks, *drafts, *([1] * sum(beams))])


def one_row_to_verify(chunks, drafts, beams):
    """verifies all drafts of a request in one row"""
    return _answer([*chunks, *([1] * len(drafts)), *([1] * sum(beams))])


def beams_share_a_row(chunks, drafts, beams):
    """gives all beams of a request one row"""
    return _answer([*chunks, *(1 + k for k in drafts), *([1] * len(beams))])


def beams_in_one_sequence(chunks, drafts, beams):
    """takes the beams of a request for one sequence of several tokens"""
    return _answer([*chunks, *(1 + k for k in drafts), *beams])


def decodes_first(chunks, drafts, beams):
    """puts the decodes before the contexts"""
    return _answer([*([1] * sum(beams)), *(1 + k for k in drafts), *chunks])

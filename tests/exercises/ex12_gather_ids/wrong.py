"""Wrong in ways that people are."""


def _rows(batch, wanted, count=None):
    found, row = [], 0
    for one in batch:
        size = one["rows"] if one["kind"] == "chunk" else 1 + one.get("drafts", 0)
        take = wanted(one, size)
        found += range(row + size - take, row + size)
        row += count(one, size) if count else size
    return found


def _right(one, size):
    if one["kind"] != "chunk" or (RULE == "b" and one["scores"]):
        return size
    return 1 if one["last"] else 0


def one_logit_each(batch):
    """gives every request one logit in each step"""
    return _rows(batch, lambda one, size: 1)


def every_row(batch):
    """computes the output layer for every row"""
    return _rows(batch, lambda one, size: size)


def last_draft_only(batch):
    """wants only the last row of a verified request, so that its drafts cannot be compared"""
    return _rows(batch, lambda one, size: 1 if one["kind"] == "verify" else _right(one, size))


def drafts_without_the_newest(batch):
    """wants a logit for each draft but not for the newest token before them"""
    return _rows(batch, lambda one, size: size - 1 if one["kind"] == "verify" else _right(one, size))


def counts_requests(batch):
    """counts requests where rows are meant"""
    return _rows(batch, _right, lambda one, size: 1)


def first_row_of_a_prompt(batch):
    """takes the first row of a finished prompt instead of its last"""
    found, row = [], 0
    for one in batch:
        size = one["rows"] if one["kind"] == "chunk" else 1 + one.get("drafts", 0)
        found += range(row, row + _right(one, size))
        row += size
    return found


def forgets_unfinished_chunks(batch):
    """does not count the rows of unfinished chunks, so that all rows behind them move up"""
    return _rows(batch, _right, lambda one, size: 0 if one["kind"] == "chunk" and not one["last"] else size)


def scores_otherwise(batch):
    """treats scores as the other version of the rule does"""

    def wanted(one, size):
        if one["kind"] != "chunk" or (RULE == "a" and one["scores"]):
            return size
        return 1 if one["last"] else 0

    return _rows(batch, wanted)

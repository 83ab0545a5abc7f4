"""Wrong in ways that people are."""


def _sizes(requests, rows, longest, block_size, most_drafts, most_beams, **changed):
    kept = longest if RULE == "a" else longest - 1
    right = {
        "tokens": rows,
        "gather": min(rows, requests * max(1 + most_drafts, most_beams)),
        "lengths": min(rows, requests * most_beams),
        "table_width": -(-kept // block_size),
    }
    return {**right, **changed}


def by_batch(requests, rows, longest, block_size, most_drafts, most_beams):
    """sizes the token buffer by requests and not by rows, so that the first prompt overflows it"""
    tokens = min(rows, requests * max(1 + most_drafts, most_beams))
    return _sizes(requests, rows, longest, block_size, most_drafts, most_beams, tokens=tokens)


def forgets_drafts(requests, rows, longest, block_size, most_drafts, most_beams):
    """wants one logit of each sequence and forgets the rows of drafts"""
    return _sizes(requests, rows, longest, block_size, most_drafts, most_beams, gather=min(rows, requests * most_beams))


def forgets_beams(requests, rows, longest, block_size, most_drafts, most_beams):
    """counts one sequence for each request and forgets beams"""
    return _sizes(requests, rows, longest, block_size, most_drafts, most_beams, lengths=requests)


def rows_do_not_bind(requests, rows, longest, block_size, most_drafts, most_beams):
    """multiplies limits and forgets that a step has no more than its rows"""
    gather = requests * max(1 + most_drafts, most_beams)
    return _sizes(
        requests, rows, longest, block_size, most_drafts, most_beams, gather=gather, lengths=requests * most_beams
    )


def drafts_times_beams(requests, rows, longest, block_size, most_drafts, most_beams):
    """multiplies drafts by beams, though a request has one or the other"""
    gather = min(rows, requests * (1 + most_drafts) * most_beams)
    return _sizes(requests, rows, longest, block_size, most_drafts, most_beams, gather=gather)


def width_in_tokens(requests, rows, longest, block_size, most_drafts, most_beams):
    """gives a block table a column for every token"""
    return _sizes(requests, rows, longest, block_size, most_drafts, most_beams, table_width=longest)


def full_blocks_only(requests, rows, longest, block_size, most_drafts, most_beams):
    """rounds the width of a block table down, so that a begun block has no column"""
    kept = longest if RULE == "a" else longest - 1
    return _sizes(requests, rows, longest, block_size, most_drafts, most_beams, table_width=max(1, kept // block_size))

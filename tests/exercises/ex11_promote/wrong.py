"""Wrong in ways that people are."""


def _promote(contexts, graphs_on, num_drafts, *, position=lambda c: c["done"], last=True, order=None):
    ok = all(c["take"] == 1 and (not last or c["done"] + 1 == c["prompt"]) for c in contexts)
    if not graphs_on or num_drafts or not ok:
        return []
    rows = [[c["id"], position(c)] for c in contexts]
    by_position = (RULE == "b") if order is None else order
    return sorted(rows, key=lambda row: (row[1], row[0])) if by_position else rows


def prefill_stays_prefill(contexts, graphs_on, num_drafts):
    """never promotes: a prefill must run as a prefill, it thinks"""
    return []


def promotes_some(contexts, graphs_on, num_drafts):
    """promotes those that can be, beside contexts that cannot, which keeps the step from its graph anyway"""
    final = [c for c in contexts if c["take"] == 1 and c["done"] + 1 == c["prompt"]]
    return _promote(final, graphs_on, num_drafts)


def one_token_suffices(contexts, graphs_on, num_drafts):
    """promotes every chunk of one token, the one inside a prompt too"""
    return _promote(contexts, graphs_on, num_drafts, last=False)


def end_of_the_prompt(contexts, graphs_on, num_drafts):
    """puts the row one position too far, at the length of the prompt"""
    return _promote(contexts, graphs_on, num_drafts, position=lambda c: c["prompt"])


def trusts_the_stale_slot(contexts, graphs_on, num_drafts):
    """leaves out a context that has a slot from an earlier life"""
    return [] if any(c["slot"] is not None for c in contexts) else _promote(contexts, graphs_on, num_drafts)


def forgets_drafts(contexts, graphs_on, num_drafts):
    """promotes beside drafts too, where a row of one token has no graph"""
    return _promote(contexts, graphs_on, 0)


def forgets_that_graphs_are_off(contexts, graphs_on, num_drafts):
    """promotes even when there are no graphs"""
    return _promote(contexts, True, num_drafts)


def orders_otherwise(contexts, graphs_on, num_drafts):
    """orders the rows as the other version of the rule does"""
    return _promote(contexts, graphs_on, num_drafts, order=RULE == "a")

"""Wrong in ways that people are."""


def _ask(last, now, *, skip=(), same=None, grown=None):
    if last is None:
        return False
    if any(last[n] for n in ("warmup", "contexts", "drafts", "padding") if f"last.{n}" not in skip):
        return False
    if any(now[n] for n in ("warmup", "contexts", "drafts") if f"now.{n}" not in skip):
        return False
    if not now["samples"] and "samples" not in skip:
        return False
    if (RULE == "b" if grown is None else grown) and now["grown"]:
        return False
    return same(last["ids"], now["ids"]) if same else last["ids"] == now["ids"]


def never(last, now):
    """always takes the full path, which is safe and of no use"""
    return False


def same_size_same_batch(last, now):
    """compares how many requests there are, not which"""
    return _ask(last, now, same=lambda a, b: len(a) == len(b))


def same_set(last, now):
    """compares the sets of requests and not their order, which is that of the rows"""
    return _ask(last, now, same=lambda a, b: set(a) == set(b))


def trusts_the_last_step(last, now):
    """looks at this step only, and not at what the last one left behind"""
    return _ask(last, now, skip=("last.warmup", "last.contexts", "last.drafts", "last.padding"))


def forgets_padding(last, now):
    """derives from a padded step, whose dummies have no samples"""
    return _ask(last, now, skip=("last.padding",))


def ignores_newcomers(last, now):
    """overlooks that a context joined"""
    return _ask(last, now, skip=("now.contexts",))


def ignores_drafts(last, now):
    """overlooks that drafts are verified in this step"""
    return _ask(last, now, skip=("now.drafts",))


def ignores_warmup(last, now):
    """takes a warm-up step for a step that serves"""
    return _ask(last, now, skip=("now.warmup", "last.warmup"))


def needs_no_samples(last, now):
    """does not ask whether the last samples lie on the device"""
    return _ask(last, now, skip=("samples",))


def growth_otherwise(last, now):
    """treats block tables that grew as the other version of the rule does"""
    return _ask(last, now, grown=RULE == "a")

"""Wrong in ways that people are."""


def _key(step, *, sampler=None, drafts=None, contexts=True, rule=None, beams=True):
    requests = step["requests"]
    counts = [one["drafts"] for one in requests]
    if (step["contexts"] and contexts) or not requests or ((rule or RULE) == "a" and len(set(counts)) > 1):
        return None
    mode = sampler(step) if sampler else ("greedy" if all(o["temperature"] == 0 for o in requests) else "full")
    return [len(requests), drafts(counts) if drafts else max(counts), mode, step["beams"] if beams else 1]


def shape_is_enough(step):
    """looks at shapes only, and replays a greedy graph for a request that samples"""
    return _key(step, sampler=lambda s: "greedy")


def trusts_the_flag(step):
    """believes the flag all_greedy, which may be stale"""
    return _key(step, sampler=lambda s: "greedy" if s["all_greedy"] else "full")


def first_request_decides(step):
    """lets the first request speak for all of them"""
    return _key(step, sampler=lambda s: "greedy" if s["requests"][0]["temperature"] == 0 else "full")


def contexts_do_not_matter(step):
    """makes a key for a step with prompts, which no decode graph can run"""
    return _key(step, contexts=False)


def equal_chunks_are_fine(step):
    """refuses prompts only when their chunks have different sizes"""
    return _key(step, contexts=len(set(step["contexts"])) > 1)


def forgets_drafts(step):
    """leaves the drafts out of the key"""
    return _key(step, drafts=lambda counts: 0)


def forgets_beams(step):
    """leaves the beams out of the key"""
    return _key(step, beams=False)


def contents_in_the_key(step):
    """puts contents into the key, so that hardly any two steps share a graph"""
    out = _key(step)
    return out and [out[0] * 1000 + step["requests"][0]["position"], *out[1:]]


def mixed_otherwise(step):
    """treats mixed drafts as the other version of the rule does"""
    return _key(step, rule="b" if RULE == "a" else "a")

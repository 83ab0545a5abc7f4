"""Wrong in ways that people are."""


def _reason(step, config, order=None):
    batch, sizes = step["requests"], config["sizes"]
    fails = {
        "graphs off": not config["graphs"],
        "prompt": step["contexts"] > 0,
        "above the largest size": batch > max(sizes),
        "between sizes": batch not in sizes and not config["padding"],
        "no dummy": batch not in sizes and not config["dummy"],
        "sampler": ("full" if step["samples"] else "greedy") not in config["samplers"],
    }
    return next((name for name in order or fails if fails[name]), None)


def _diagnose(step, config, *, reason=None, rule=None, once=False, sizes=None, prompt=True):
    first = reason(step, config) if reason else _reason(step, config)
    change, now = {}, dict(config)
    while (found := _reason(step, now)) is not None:
        if found == "prompt":
            if prompt:
                return {"reason": first, "change": {}}
            break
        if found == "graphs off":
            new = {"graphs": True}
        elif found == "sampler":
            new = {"samplers": ["full", "greedy"]}
        elif found.startswith("above") or (rule or RULE) == "b" or not (now["padding"] or now["dummy"]):
            grown = sizes(now["sizes"], step["requests"]) if sizes else [*now["sizes"], step["requests"]]
            new = {"sizes": sorted(set(grown))}
        else:
            new = {"padding": True} if found == "between sizes" else {"dummy": True}
        change.update(new)
        now.update(new)
        if once:
            break
    return {"reason": first, "change": change}


def blames_the_sampler_first(step, config):
    """looks at the sampler before it looks at the sizes"""
    order = ("sampler", "graphs off", "prompt", "above the largest size", "between sizes", "no dummy")
    return _diagnose(step, config, reason=lambda s, c: _reason(s, c, order))


def one_change_is_enough(step, config):
    """changes what the reason names and does not ask again"""
    return _diagnose(step, config, once=True)


def switches_everything_on(step, config):
    """switches everything on, needed or not"""
    found = _reason(step, config)
    if found is None or step["contexts"]:
        return {"reason": found, "change": {}}
    grown = sorted({*config["sizes"], step["requests"]})
    change = {"graphs": True, "padding": True, "dummy": True, "samplers": ["full", "greedy"], "sizes": grown}
    return {"reason": found, "change": change}


def next_power_of_two(step, config):
    """adds the next power of two and not the batch itself"""

    def grown(sizes, batch):
        power = 1
        while power < batch:
            power *= 2
        return [*sizes, power, *([batch] if power in sizes else [])]

    return _diagnose(step, config, sizes=grown)


def forgets_exact_hits(step, config):
    """asks for padding and a dummy even when there is an exact size"""

    def reason(s, c):
        found = _reason(s, c)
        if found in (None, "sampler") and not c["padding"]:
            return "between sizes"
        return "no dummy" if found in (None, "sampler") and not c["dummy"] else found

    return _diagnose(step, config, reason=reason)


def prompts_never_matter(step, config):
    """overlooks prompts and finds something else to blame"""
    return _diagnose({**step, "contexts": 0}, config)


def padding_and_dummy_are_one(step, config):
    """takes a missing dummy for padding that is off"""

    def reason(s, c):
        found = _reason(s, c)
        return "between sizes" if found == "no dummy" else found

    return _diagnose(step, config, reason=reason)


def prefers_otherwise(step, config):
    """prefers, of equally small changes, the one that the other version of the rule does"""
    return _diagnose(step, config, rule="b" if RULE == "a" else "a")

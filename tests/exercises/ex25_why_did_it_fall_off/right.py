"""Right in other ways."""

import itertools


def _reason(step, config):
    if not config["graphs"]:
        return "graphs off"
    if step["contexts"]:
        return "prompt"
    if config["sizes"][-1] < step["requests"]:
        return "above the largest size"
    if step["requests"] not in config["sizes"]:
        if not config["padding"]:
            return "between sizes"
        if not config["dummy"]:
            return "no dummy"
    if ("full" if step["samples"] else "greedy") not in config["samplers"]:
        return "sampler"
    return None


def by_trying_all(step, config):
    reason = _reason(step, config)
    remedies = {"graphs": True, "padding": True, "dummy": True, "samplers": ["full", "greedy"]}
    grown = {"sizes": sorted(set(config["sizes"]) | {step["requests"]})}
    ordered = {**grown, **remedies} if RULE == "b" else {**remedies, **grown}
    for count in range(len(ordered) + 1):
        for names in itertools.combinations(ordered, count):
            change = {name: ordered[name] for name in names}
            if _reason(step, {**config, **change}) is None:
                return {"reason": reason, "change": change}
    return {"reason": reason, "change": {}}


def by_asking_again(step, config):
    first = _reason(step, config)
    change, now = {}, dict(config)
    while (reason := _reason(step, now)) is not None:
        if reason == "prompt":
            return {"reason": first, "change": {}}
        if reason == "graphs off":
            new = {"graphs": True}
        elif reason == "sampler":
            new = {"samplers": ["full", "greedy"]}
        elif reason == "above the largest size" or RULE == "b" or not (now["padding"] or now["dummy"]):
            new = {"sizes": sorted(now["sizes"] + [step["requests"]])}
        else:
            new = {"padding": True} if reason == "between sizes" else {"dummy": True}
        change.update(new)
        now.update(new)
    return {"reason": first, "change": change}


def with_a_table(step, config):
    exact = step["requests"] in config["sizes"]
    large = step["requests"] > config["sizes"][-1]
    needs = {"graphs": not config["graphs"]}
    needs["samplers"] = {True: "full", False: "greedy"}[step["samples"]] not in config["samplers"]
    off = [n for n in ("padding", "dummy") if not config[n]] if not exact else []
    add = large or len(off) == 2 or (len(off) == 1 and RULE == "b")
    values = {"graphs": True, "samplers": ["full", "greedy"], "padding": True, "dummy": True}
    change = {n: values[n] for n, needed in needs.items() if needed}
    if add:
        change["sizes"] = sorted([step["requests"], *config["sizes"]])
    else:
        change.update(dict.fromkeys(off, True))
    if step["contexts"]:
        change = {}
    return {"reason": _reason(step, config), "change": change}

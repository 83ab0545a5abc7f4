"""The solution of *Why did it fall off*."""


def diagnose(step, config):
    sizes, batch = config["sizes"], step["requests"]
    sampler = "full" if step["samples"] else "greedy"
    failing = {
        "graphs off": not config["graphs"],
        "prompt": step["contexts"] > 0,
        "above the largest size": batch > max(sizes),
        "between sizes": batch not in sizes and not config["padding"],
        "no dummy": batch not in sizes and not config["dummy"],
        "sampler": sampler not in config["samplers"],
    }
    reason = next((name for name, fails in failing.items() if fails), None)
    if reason is None or step["contexts"]:
        return {"reason": reason, "change": {}}
    change = {}
    if failing["graphs off"]:
        change["graphs"] = True
    if failing["sampler"]:
        change["samplers"] = ["full", "greedy"]
    switches = [name for name in ("padding", "dummy") if not config[name]]
    if failing["above the largest size"] or (batch not in sizes and switches):
        if failing["above the largest size"] or len(switches) > 1 or RULE == "b":
            change["sizes"] = sorted([*sizes, batch])
        else:
            change[switches[0]] = True
    return {"reason": reason, "change": change}

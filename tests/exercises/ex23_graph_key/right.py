"""Right in other ways."""


def with_guards(step):
    if len(step["contexts"]) > 0:
        return None
    if not step["requests"]:
        return None
    counts = [r["drafts"] for r in step["requests"]]
    if RULE == "a" and min(counts) != max(counts):
        return None
    hot = [r for r in step["requests"] if r["temperature"] > 0]
    return (len(counts), max(counts), "full" if hot else "greedy", step["beams"])


def by_loop(step):
    longest, sampler, count = None, "greedy", 0
    for r in step["requests"]:
        count += 1
        if r["temperature"]:
            sampler = "full"
        if longest is not None and r["drafts"] != longest and RULE == "a":
            return None
        longest = r["drafts"] if longest is None else max(longest, r["drafts"])
    if count == 0 or step["contexts"]:
        return None
    return [count, longest, sampler, step["beams"]]


def by_sorting(step):
    ordered = sorted(step["requests"], key=lambda r: r["drafts"])
    modes = {0: "greedy"}
    if step["contexts"] or not ordered:
        return None
    if ordered[0]["drafts"] != ordered[-1]["drafts"] and RULE != "b":
        return None
    heat = max(r["temperature"] for r in ordered)
    return [len(ordered), ordered[-1]["drafts"], modes.get(heat, "full"), step["beams"]]

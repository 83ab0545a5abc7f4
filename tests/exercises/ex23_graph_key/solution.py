"""The solution of *Write the graph key*."""


def graph_key(step):
    requests = step["requests"]
    drafts = {one["drafts"] for one in requests}
    if step["contexts"] or not requests or (len(drafts) > 1 and RULE == "a"):
        return None
    sampler = "greedy" if all(one["temperature"] == 0 for one in requests) else "full"
    return [len(requests), max(drafts), sampler, step["beams"]]

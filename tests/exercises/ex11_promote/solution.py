"""The solution of *Promote the last context*."""


def promoted(contexts, graphs_on, num_drafts):
    final = [one for one in contexts if one["take"] == 1 and one["done"] + 1 == one["prompt"]]
    if not graphs_on or num_drafts or len(final) < len(contexts):
        return []
    rows = [[one["id"], one["done"]] for one in contexts]
    return rows if RULE == "a" else sorted(rows, key=lambda row: (row[1], row[0]))

"""The solution of *Admit under three budgets*."""


def admit(queue, rows, places, blocks, block_size):
    taken = []
    for one in queue:
        known = one["prompt"] + one["generated"]
        kept = one["prompt"] + one["most"] - (1 if RULE == "a" else 0)
        needed = (kept + block_size - 1) // block_size
        if known > rows or places < 1 or needed > blocks:
            break
        rows, places, blocks = rows - known, places - 1, blocks - needed
        taken.append(one["id"])
    return taken

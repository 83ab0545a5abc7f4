"""Wrong in ways that people are."""


def _admit(queue, rows, places, blocks, block_size, *, known=None, kept=None, skip=False, use=(1, 1, 1)):
    taken = []
    for one in queue:
        tokens = known(one) if known else one["prompt"] + one["generated"]
        whole = kept(one) if kept else one["prompt"] + one["most"] - (RULE == "a")
        needed = -(-whole // block_size)
        if (use[0] and tokens > rows) or (use[1] and places < 1) or (use[2] and needed > blocks):
            if skip:
                continue
            break
        rows, places, blocks = rows - tokens, places - 1, blocks - needed
        taken.append(one["id"])
    return taken


def only_the_token_budget(queue, rows, places, blocks, block_size):
    """looks at the token budget alone; blocks run out later"""
    return _admit(queue, rows, places, blocks, block_size, use=(1, 1, 0))


def ignores_places(queue, rows, places, blocks, block_size):
    """admits more requests than there are places"""
    return _admit(queue, rows, places, blocks, block_size, use=(1, 0, 1))


def blocks_for_this_step(queue, rows, places, blocks, block_size):
    """reserves blocks for the tokens of this step only, so that a request may starve half way"""
    return _admit(queue, rows, places, blocks, block_size, kept=lambda r: r["prompt"] + r["generated"])


def forgets_the_recompute(queue, rows, places, blocks, block_size):
    """charges a paused request its prompt only, though it computes its generated tokens again"""
    return _admit(queue, rows, places, blocks, block_size, known=lambda r: r["prompt"])


def lets_others_overtake(queue, rows, places, blocks, block_size):
    """skips a request that does not fit and lets those behind it overtake"""
    return _admit(queue, rows, places, blocks, block_size, skip=True)


def counts_the_last_token_otherwise(queue, rows, places, blocks, block_size):
    """treats the last token as the other version of the rule does"""
    return _admit(queue, rows, places, blocks, block_size, kept=lambda r: r["prompt"] + r["most"] - (RULE == "b"))


def rounds_blocks_down(queue, rows, places, blocks, block_size):
    """counts full blocks only, though a begun block is a block"""
    size = block_size
    return _admit(queue, rows, places, blocks, 1, kept=lambda r: (r["prompt"] + r["most"] - (RULE == "a")) // size)

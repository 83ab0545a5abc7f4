"""Wrong in ways that people are."""


def _map(positions, row, valid, shared, block_size, *, slot=None, wide=False, rule=None, keep=False):
    found = []
    for at in positions:
        column, offset = divmod(at, block_size)
        if column >= (len(row) if wide else valid):
            if keep:
                continue
            return None
        if column < shared and (rule or RULE) == "a":
            return None
        if column < shared and (rule or RULE) == "b":
            found.append(-1)
        else:
            found.append(slot(at, column, offset) if slot else row[column] * block_size + offset)
    return found


def blocks_are_neighbours(positions, row, valid, shared, block_size):
    """counts on from the first block, as if the blocks were neighbours"""
    return _map(positions, row, valid, shared, block_size, slot=lambda at, c, o: row[0] * block_size + at)


def position_is_slot(positions, row, valid, shared, block_size):
    """takes the position for the slot"""
    return _map(positions, row, valid, shared, block_size, slot=lambda at, c, o: at)


def forgets_the_place(positions, row, valid, shared, block_size):
    """finds the block and forgets the place inside it"""
    return _map(positions, row, valid, shared, block_size, slot=lambda at, c, o: row[c] * block_size)


def block_is_slot(positions, row, valid, shared, block_size):
    """adds the place to the number of the block, not to its first slot"""
    return _map(positions, row, valid, shared, block_size, slot=lambda at, c, o: row[c] + o)


def reads_stale_columns(positions, row, valid, shared, block_size):
    """reads columns that an earlier step has left behind"""
    return _map(positions, row, valid, shared, block_size, wide=True)


def drops_what_does_not_fit(positions, row, valid, shared, block_size):
    """leaves out positions without a block and writes the others"""
    return _map(positions, row, valid, shared, block_size, keep=True)


def writes_shared_blocks(positions, row, valid, shared, block_size):
    """writes into blocks that other requests read"""
    return _map(positions, row, valid, shared, block_size, rule="none")


def shared_otherwise(positions, row, valid, shared, block_size):
    """treats shared blocks as the other version of the rule does"""
    return _map(positions, row, valid, shared, block_size, rule="b" if RULE == "a" else "a")

"""The solution of *Slot mapping*."""


def slots(positions, row, valid, shared, block_size):
    found = []
    for at in positions:
        column, offset = divmod(at, block_size)
        if column >= valid or (column < shared and RULE == "a"):
            return None
        found.append(-1 if column < shared else row[column] * block_size + offset)
    return found

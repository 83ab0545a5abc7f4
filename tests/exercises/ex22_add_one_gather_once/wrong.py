"""Wrong in ways that people are."""


def _advance(device, count, *, lengths=None):
    device.add("positions", count, 1)
    if (RULE == "a") if lengths is None else lengths:
        device.add("lengths", count, 1)
    device.gather("tokens", "samples", "slots", count)


def sends_positions(device, count):
    """sends the positions from the host, which read them first"""
    device.send("positions", [at + 1 for at in device.buffers["positions"][:count]])
    if RULE == "a":
        device.add("lengths", count, 1)
    device.gather("tokens", "samples", "slots", count)


def one_operation_a_row(device, count):
    """brings each row forward by itself, in an operation for each of its prefixes"""
    for _ in range(count):
        device.gather("tokens", "samples", "slots", count)
    _advance(device, count)


def whole_buffer(device, count):
    """brings the whole buffer forward, the rows of nobody too"""
    _advance(device, len(device.buffers["tokens"]))


def tokens_count_too(device, count):
    """adds one to the tokens, as if the next token were the next number"""
    device.add("positions", count, 1)
    if RULE == "a":
        device.add("lengths", count, 1)
    device.add("tokens", count, 1)


def forgets_positions(device, count):
    """gathers the tokens and leaves positions and lengths where they were"""
    device.gather("tokens", "samples", "slots", count)


def slots_as_tokens(device, count):
    """gathers the slots through the samples, the wrong way round"""
    device.add("positions", count, 1)
    if RULE == "a":
        device.add("lengths", count, 1)
    top = len(device.buffers["samples"])
    device.buffers["wrapped"] = [value % top for value in device.buffers["samples"]]
    device.gather("tokens", "slots", "wrapped", count)


def lengths_otherwise(device, count):
    """treats the lengths as the other version of the rule does"""
    _advance(device, count, lengths=RULE == "b")

"""Wrong in ways that people are."""


def _lists(requests):
    tokens = [token for one in requests for token in one["tokens"]]
    positions = [at for one in requests for at in one["positions"]]
    return tokens, positions


def _send(device, tokens, positions, *, always=False):
    lists = {"tokens": tokens, "positions": positions} if RULE == "a" else {"packed": tokens + positions}
    for name, values in lists.items():
        if values or always:
            device.copy(name, 0, device.pin(values))


def one_copy_a_request(device, requests):
    """makes a copy for each request and each buffer"""
    done, total = 0, len(_lists(requests)[0])
    for one in requests:
        if one["tokens"]:
            if RULE == "a":
                device.copy("tokens", done, device.pin(one["tokens"]))
                device.copy("positions", done, device.pin(one["positions"]))
            else:
                device.copy("packed", done, device.pin(one["tokens"]))
                device.copy("packed", total + done, device.pin(one["positions"]))
            done += len(one["tokens"])


def every_copy_at_zero(device, requests):
    """writes every request at offset 0, over the one before"""
    for one in requests:
        if one["tokens"]:
            _send(device, one["tokens"], one["positions"])


def copies_nothing_too(device, requests):
    """starts a copy even when there is nothing to copy"""
    tokens, positions = _lists(requests)
    _send(device, tokens, positions, always=True)


def last_rows_only(device, requests):
    """sends one token for each request, as if nobody were in a prompt"""
    tokens = [one["tokens"][-1] for one in requests if one["tokens"]]
    positions = [one["positions"][-1] for one in requests if one["positions"]]
    _send(device, tokens, positions)


def positions_made_up(device, requests):
    """numbers the rows of the batch and takes that for positions"""
    tokens, _ = _lists(requests)
    _send(device, tokens, list(range(len(tokens))))


def swaps_the_lists(device, requests):
    """sends the positions where the tokens belong"""
    tokens, positions = _lists(requests)
    _send(device, positions, tokens)


def interleaves(device, requests):
    """sends tokens and positions in the order of the requests reversed"""
    tokens, positions = _lists(requests[::-1])
    _send(device, tokens, positions)

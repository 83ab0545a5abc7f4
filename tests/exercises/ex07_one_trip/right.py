"""Right in other ways."""

import functools
import itertools
import operator


def with_chains(device, requests):
    both = [
        list(itertools.chain.from_iterable(map(operator.itemgetter(name), requests)))
        for name in ("tokens", "positions")
    ]
    if not both[0]:
        return
    if RULE == "b":
        device.copy("packed", 0, device.pin(both[0] + both[1]))
        return
    device.copy("positions", 0, device.pin(both[1]))
    device.copy("tokens", 0, device.pin(both[0]))


def by_extending(device, requests):
    tokens, positions = [], []
    for one in requests:
        tokens.extend(one["tokens"])
        positions.extend(one["positions"])
    if RULE == "a":
        for name, values in (("tokens", tokens), ("positions", positions)):
            if len(values) > 0:
                device.copy(name, 0, device.pin(values))
    else:
        tokens.extend(positions)
        if tokens:
            device.copy("packed", 0, device.pin(tokens))


def by_reduction(device, requests):
    def joined(name):
        return functools.reduce(operator.add, [one[name] for one in requests], [])

    pieces = [("packed", joined("tokens") + joined("positions"))]
    if RULE == "a":
        pieces = [(name, joined(name)) for name in ("positions", "tokens")]
    for name, values in pieces:
        if values:
            pinned = device.pin(values)
            device.copy(name, 0, pinned)

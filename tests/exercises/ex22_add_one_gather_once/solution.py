"""The solution of *Add one, gather once*."""


def advance(device, count):
    device.add("positions", count, 1)
    if RULE == "a":
        device.add("lengths", count, 1)
    device.gather("tokens", "samples", "slots", count)

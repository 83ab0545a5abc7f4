"""The solution of *When may I reuse the source*."""


def send_all(device, lists):
    count = 2 if RULE == "a" else 3
    mirrors = [device.mirror() for _ in range(count)]
    events = [None] * count
    for at, values in enumerate(lists):
        slot = at % count
        if events[slot] is not None:
            events[slot].wait()
        mirrors[slot].write(values)
        events[slot] = device.copy(mirrors[slot])

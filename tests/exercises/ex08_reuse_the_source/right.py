"""Right in other ways."""

import collections


def with_a_queue(device, lists):
    most = {"a": 2, "b": 3}[RULE]
    ring = collections.deque()
    for values in lists:
        if len(ring) == most:
            mirror, event = ring.popleft()
            event.wait()
        else:
            mirror = device.mirror()
        mirror.write(values)
        ring.append((mirror, device.copy(mirror)))


def with_dictionaries(device, lists):
    mirrors, events = {}, {}
    for at, values in enumerate(lists):
        slot = at % (3 if RULE == "b" else 2)
        if slot in events:
            events.pop(slot).wait()
        if slot not in mirrors:
            mirrors[slot] = device.mirror()
        mirrors[slot].write(values)
        events[slot] = device.copy(mirrors[slot])


def with_all_events(device, lists):
    most = 2 if RULE == "a" else 3
    mirrors = [device.mirror() for _ in range(min(most, len(lists)))]
    events = []
    for at in range(len(lists)):
        if at >= most:
            events[at - most].wait()
        mirrors[at % most].write(lists[at])
        events.append(device.copy(mirrors[at % most]))

"""Wrong in ways that people are."""


def _count():
    return 2 if RULE == "a" else 3


def started_means_done(device, lists):
    """takes a copy that has returned for one that is done, and writes one mirror again and again"""
    mirror = device.mirror()
    for values in lists:
        mirror.write(values)
        device.copy(mirror)


def ring_without_events(device, lists):
    """goes round the mirrors without waiting, and hopes that the device keeps up"""
    mirrors = [device.mirror() for _ in range(_count())]
    for at, values in enumerate(lists):
        mirrors[at % len(mirrors)].write(values)
        device.copy(mirrors[at % len(mirrors)])


def waits_at_once(device, lists):
    """waits for every copy right after it was started, so that nothing overlaps"""
    mirror = device.mirror()
    for values in lists:
        mirror.write(values)
        device.copy(mirror).wait()


def a_mirror_a_list(device, lists):
    """makes a new mirror for every list"""
    for values in lists:
        mirror = device.mirror()
        mirror.write(values)
        device.copy(mirror)


def waits_after_writing(device, lists):
    """waits for the mirror's last copy only after it has written the mirror again"""
    count = _count()
    mirrors = [device.mirror() for _ in range(count)]
    events = [None] * count
    for at, values in enumerate(lists):
        mirrors[at % count].write(values)
        if events[at % count]:
            events[at % count].wait()
        events[at % count] = device.copy(mirrors[at % count])


def waits_for_the_newest(device, lists):
    """waits for the newest copy before it writes, and so for more than the mirror needs"""
    count = _count()
    mirrors = [device.mirror() for _ in range(count)]
    event = None
    for at, values in enumerate(lists):
        if event is not None and at >= count:
            event.wait()
        mirrors[at % count].write(values)
        event = device.copy(mirrors[at % count])


def waits_for_the_first_copy_only(device, lists):
    """waits for the first copy of each mirror, and never for a later one"""
    count = _count()
    mirrors = [device.mirror() for _ in range(count)]
    events = []
    for at, values in enumerate(lists):
        if at >= count:
            events[at % count].wait()
        mirrors[at % count].write(values)
        events.append(device.copy(mirrors[at % count]))

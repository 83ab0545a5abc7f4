"""Right in other ways."""


def by_loop(device, count):
    for name in ["positions", "lengths"] if RULE == "a" else ["positions"]:
        device.add(name, count, 1)
    device.gather("tokens", "samples", "slots", count)


def gather_first(device, count):
    device.gather(target="tokens", source="samples", index="slots", count=count)
    names = ("lengths", "positions")
    for name in names[0 if RULE == "a" else 1 :]:
        device.add(name, count=count, amount=1)


def by_table(device, count):
    operations = [
        (device.gather, ("tokens", "samples", "slots", count)),
        (device.add, ("positions", count, 1)),
    ]
    if RULE == "a":
        operations.append((device.add, ("lengths", count, 1)))
    for operation, arguments in operations:
        operation(*arguments)

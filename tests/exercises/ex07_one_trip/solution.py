"""The solution of *One trip, not N*."""


def upload(device, requests):
    tokens = [token for one in requests for token in one["tokens"]]
    positions = [at for one in requests for at in one["positions"]]
    lists = {"tokens": tokens, "positions": positions} if RULE == "a" else {"packed": tokens + positions}
    for name, values in lists.items():
        if values:
            device.copy(name, 0, device.pin(values))

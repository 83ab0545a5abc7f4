"""The solution of *Choose the bucket*."""


def bucket_for(sizes, batch):
    if batch == 0 and RULE == "a":
        return None
    return min((size for size in sizes if size >= batch), default=None)

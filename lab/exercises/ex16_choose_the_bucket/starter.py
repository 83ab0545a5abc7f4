"""Choose the bucket: the start of an answer. Does not: answer."""


def bucket_for(sizes: list[int], batch: int) -> int | None:
    """Return the size that the batch is padded to, or None."""
    raise NotImplementedError

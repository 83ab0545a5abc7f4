"""Right in other ways."""

import numpy as np


def with_copyto(buffer, values):
    is_fine = values.dtype == buffer.dtype or (RULE == "b" and np.issubdtype(values.dtype, np.integer))
    if values.ndim != 1 or values.size > buffer.size or not is_fine:
        message = "refused"
        raise ValueError(message)
    target = buffer[: values.size]
    np.copyto(target, values, casting="unsafe")
    return target


def one_by_one(buffer, values):
    kinds = ("i",) if RULE == "b" else ()
    if len(values.shape) != 1 or values.shape[0] > buffer.shape[0]:
        raise ValueError
    if values.dtype != buffer.dtype and values.dtype.kind not in kinds:
        raise ValueError
    for at, value in enumerate(values.tolist()):
        buffer[at] = value
    return buffer[0 : len(values)]


def by_the_far_end(buffer, values):
    count = values.size
    if values.shape != (count,) or count > len(buffer):
        raise ValueError
    if RULE == "a" and values.dtype.name != "int32":
        raise ValueError
    if not values.dtype.name.startswith("int"):
        raise ValueError
    kept = buffer[count:].copy()
    buffer[: len(buffer) - len(kept)] = values
    return np.frombuffer(buffer.data, dtype=buffer.dtype, count=count) if count else buffer[:0]

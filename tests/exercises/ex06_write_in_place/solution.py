"""The solution of *Write in place*."""


def put(buffer, values):
    if values.ndim != 1 or len(values) > len(buffer):
        raise ValueError(values.shape)
    if values.dtype != buffer.dtype and not (RULE == "b" and values.dtype.kind == "i"):
        raise ValueError(values.dtype)
    view = buffer[: len(values)]
    view[:] = values
    return view

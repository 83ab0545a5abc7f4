"""Wrong in ways that people are."""


def _check(buffer, values, *, shape=True, length=True, kind=True):
    if shape and values.ndim != 1:
        raise ValueError
    if length and values.size > len(buffer):
        raise ValueError
    if kind and values.dtype != buffer.dtype and not (RULE == "b" and values.dtype.kind == "i"):
        raise ValueError


def binds_the_name(buffer, values):
    """makes the name mean another array and leaves the buffer's memory as it was"""
    _check(buffer, values)
    buffer = values.astype(buffer.dtype)
    return buffer


def returns_a_copy(buffer, values):
    """writes the buffer but returns a copy of it"""
    _check(buffer, values)
    buffer[: len(values)] = values
    return buffer[: len(values)].copy()


def spreads_out(buffer, values):
    """takes whatever can be spread over the front, so that a single value fills many places"""
    _check(buffer, values, shape=False, length=values.ndim == 1)
    count = max(values.shape) if values.ndim == 1 else len(buffer)
    buffer[:count] = values.reshape(-1)
    return buffer[:count]


def wipes_the_rest(buffer, values):
    """clears the whole buffer first, the part behind the values too"""
    _check(buffer, values)
    buffer[:] = 0
    buffer[: len(values)] = values
    return buffer[: len(values)]


def cuts_what_is_too_long(buffer, values):
    """cuts off what does not fit, without a word"""
    _check(buffer, values, length=False)
    values = values[: len(buffer)]
    buffer[: len(values)] = values
    return buffer[: len(values)]


def writes_before_it_refuses(buffer, values):
    """writes what fits and only then refuses"""
    _check(buffer, values, length=False)
    for at, value in enumerate(values):
        if at >= len(buffer):
            raise ValueError
        buffer[at] = value
    return buffer[: len(values)]


def any_type(buffer, values):
    """converts values of any type, without a word"""
    _check(buffer, values, kind=False)
    buffer[: len(values)] = values
    return buffer[: len(values)]


def returns_the_whole_buffer(buffer, values):
    """returns the whole buffer and not the part that was written"""
    _check(buffer, values)
    buffer[: len(values)] = values
    return buffer

"""Wrong in ways that people are."""


def _cut(prompt, cached, rows, unit, length_of):
    chunks, start = [], cached
    while start < prompt:
        length = max(1, min(prompt - start, length_of(start, prompt - start)))
        chunks.append([start, length, start + length == prompt])
        start += length
    return chunks


def _fair(start, left, rows, unit):
    if left <= rows:
        return left
    return (start + rows) // unit * unit - start if RULE == "a" else rows // unit * unit


def positions_begin_anew(prompt, cached, rows, unit):
    """lets the positions begin at 0 in every chunk"""
    return [[0, n, last] for _, n, last in _cut(prompt, cached, rows, unit, lambda s, left: _fair(s, left, rows, unit))]


def forgets_the_hit(prompt, cached, rows, unit):
    """computes the cached part of the prompt again"""
    return _cut(prompt, 0, rows, unit, lambda s, left: _fair(s, left, rows, unit))


def no_units(prompt, cached, rows, unit):
    """fills every step to the last row and pays no heed to units"""
    return _cut(prompt, cached, rows, unit, lambda s, left: rows)


def one_unit_a_step(prompt, cached, rows, unit):
    """computes one unit a step, however many rows there are"""
    return _cut(prompt, cached, rows, unit, lambda s, left: left if left <= rows else _fair(s, left, unit, unit))


def every_chunk_is_last(prompt, cached, rows, unit):
    """flags every chunk as the last, so that each would sample a token"""
    return [[s, n, True] for s, n, _ in _cut(prompt, cached, rows, unit, lambda s, left: _fair(s, left, rows, unit))]


def units_also_for_the_rest(prompt, cached, rows, unit):
    """keeps to units even where the rest of the prompt would fit, and so needs a step more"""
    return _cut(
        prompt,
        cached,
        rows,
        unit,
        lambda s, left: left if left < unit else _fair(s, left + rows, min(rows, left), unit),
    )


def units_measured_otherwise(prompt, cached, rows, unit):
    """measures the unit as the other version of the rule does"""
    return _cut(
        prompt,
        cached,
        rows,
        unit,
        lambda s, left: (
            left if left <= rows else ((s + rows) // unit * unit - s if RULE == "b" else rows // unit * unit)
        ),
    )

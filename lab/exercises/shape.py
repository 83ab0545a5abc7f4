"""The shape of an answer, and a sentence about an answer that does not have it.

A shape is written with plain Python: ``int``; ``(int, None)`` for one of several; ``[int]`` for a list of any length;
``{"tokens": int}`` for a dictionary with exactly these keys; ``Pair((int, int))`` for a list of fixed length. Booleans
are no integers, and 4.0 is no 4: a number of rows that is a float fails elsewhere, later.

Does not: judge whether an answer is right.
"""

import dataclasses
import json
from typing import Any, Final, cast

_WORDS: Final = {
    object: "anything",
    int: "an integer",
    str: "a string",
    bool: "True or False",
    float: "a number",
    None: "None",
}
MAX_SHOWN: Final = 300


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """A list of fixed length; each entry has its own shape."""

    entries: tuple[Any, ...]


def shown(value: object) -> str:
    """Write an answer or a case in one line of limited length."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 20]} ... {text[-15:]}"


def counted(number: object, noun: str) -> str:
    """Return a number with its noun, which stands in the plural but for 1: ``1 row``, ``3 copies``."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else many}"


def words(shape: object) -> str:
    """Say a shape in words."""
    if isinstance(shape, tuple):
        return " or ".join(words(one) for one in cast("tuple[object, ...]", shape))
    if isinstance(shape, list):
        [entry] = cast("list[object]", shape)
        return f"a list ({words(entry)} each)"
    if isinstance(shape, dict):
        return f"a dictionary with the keys {', '.join(cast('dict[str, object]', shape))}"
    if isinstance(shape, Pair):
        return f"a list of {len(shape.entries)} entries"
    return _WORDS[cast("type[Any] | None", shape)]


def mismatch(value: object, shape: object) -> str | None:
    """Return what is wrong with the form of a plain answer, or None."""
    if isinstance(shape, tuple):
        options = cast("tuple[object, ...]", shape)
        fits = any(mismatch(value, one) is None for one in options)
        return None if fits else _wrong(value, shape)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _wrong(value, shape)
        [entry] = cast("list[object]", shape)
        return _first((f"entry {at}", one, entry) for at, one in enumerate(cast("list[object]", value)))
    if isinstance(shape, Pair):
        values = cast("list[object]", value) if isinstance(value, list) else []
        if not isinstance(value, list) or len(values) != len(shape.entries):
            return _wrong(value, shape)
        return _first((f"entry {at}", one, shape.entries[at]) for at, one in enumerate(values))
    if isinstance(shape, dict):
        wanted = cast("dict[str, object]", shape)
        if not isinstance(value, dict) or set(cast("dict[str, object]", value)) != set(wanted):
            return _wrong(value, shape)
        held = cast("dict[str, object]", value)
        return _first((f"{name!r}", held[name], one) for name, one in wanted.items())
    return None if _is(value, shape) else _wrong(value, shape)


def _is(value: object, kind: object) -> bool:
    if kind is None or kind is object:
        return value is None or kind is object
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, cast("type", kind)) and (kind is bool or not isinstance(value, bool))


def _first(parts: Any) -> str | None:
    for where, value, shape in parts:
        problem = mismatch(value, shape)
        if problem is not None:
            return f"{where}: {problem}"
    return None


def _wrong(value: object, shape: object) -> str:
    return f"must be {words(shape)}, is {shown(value)} ({type(value).__name__})"


def canonical(value: object) -> str:
    """Write a plain value so that equal values, and only those, give equal text (true is not 1)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def same(left: object, right: object) -> bool:
    """Whether two plain values are the same, types included."""
    return canonical(left) == canonical(right)

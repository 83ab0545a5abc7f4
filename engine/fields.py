"""Single values from outside (configurations, prompts, model files): taken if they fit, else refused in one wording.

A refusal says which field, what was required and what was got, and quotes the value in at most 80 characters,
whatever it is. Numbers of other libraries (numpy's) become plain ones; booleans and floats are no integers here.
Does not: know any field, or check two of them against each other.
"""

import contextlib
import itertools
import math
import numbers
import reprlib
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from engine.errors import StepscopeError

MAX_SHOWN: Final = 80
MAX_ITEMS: Final = 1 << 16  # more of anything in a configuration is a slip, perhaps an endless iterator

Refusal = type[StepscopeError]

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = MAX_SHOWN
_short.maxtuple = _short.maxlist = _short.maxdict = _short.maxset = _short.maxfrozenset = 24


def shown(value: object) -> str:
    """Quote a value in a message: its repr, the middle left out when it is long. Never raises."""
    try:
        text = _short.repr(value)
    except Exception:  # noqa: BLE001 (an integer of 5000 digits has no repr, and anybody's repr may raise)
        text = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    text = " ".join(text.split("\n"))
    if len(text) <= MAX_SHOWN:
        return text
    keep = (MAX_SHOWN - 3) // 2
    return f"{text[: keep + 1]}...{text[-keep:]}"


def cut(words: object, most: int = 240) -> str:
    """Give another library's words in one line of limited length; they may quote a whole file."""
    text = " ".join(str(words).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def refuse(refusal: Refusal, field: str, wanted: str, got: object, hint: str = "") -> NoReturn:
    """Raise the one message: field, what was required, what was got, and the hint after a semicolon."""
    message = f"{field} must be {wanted}, got {shown(got)}{f'; {hint}' if hint else ''}"
    raise refusal(message)


def integer(
    field: str,
    value: object,
    *,
    refusal: Refusal,
    low: int,
    high: int | None = None,
    at_most: int | None = None,
    hint: str = "",
) -> int:
    """Take an integer. high is part of what is asked for; at_most only keeps absurd sizes out."""
    whole = int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else None
    if whole is not None and whole >= low and (high is None or whole <= high):
        if at_most is not None and whole > at_most:
            refuse(refusal, field, f"at most {at_most}", value)
        return whole
    wanted = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
    meant, most = _spelled(value), high if high is not None else at_most
    fits = meant is not None and meant >= low and (most is None or meant <= most)
    refuse(refusal, field, wanted, value, f"use {meant}" if fits else hint)


def _spelled(value: object) -> int | None:
    """Return the integer that a float or a short text spells."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    is_text = isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdecimal()
    return int(value) if isinstance(value, str) and is_text else None


def number(
    field: str, value: object, low: float, high: float = math.inf, *, refusal: Refusal, low_open: bool = False
) -> float:
    """Take a finite number between the bounds, which belong to the interval unless ``low_open``."""
    found = math.nan
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # an integer too large for a float is no finite number
            found = float(value)
    if math.isfinite(found) and low <= found <= high and not (low_open and found == low):
        return found
    interval = f"{'(' if low_open else '['}{low:g}, {high:g}{']' if math.isfinite(high) else ')'}"
    refuse(refusal, field, f"a finite number in {interval}", value)


def flag(field: str, value: object, *, refusal: Refusal) -> bool:
    """Take True or False, nothing that merely counts as one of them."""
    if isinstance(value, bool):
        return value
    refuse(refusal, field, "True or False", value)


def choice(field: str, value: object, choices: tuple[str | None, ...], *, refusal: Refusal) -> str | None:
    """Take one of some names."""
    if (value is None or isinstance(value, str)) and value in choices:
        return value
    meant = [one for one in choices if isinstance(value, str) and value.lower() == str(one).lower()]
    hint = f"use {meant[0]!r}" if meant else ""
    refuse(refusal, field, f"one of {', '.join(map(repr, choices))}", value, hint)


def items(field: str, value: object, of: str, *, refusal: Refusal, hint: str = "") -> tuple[object, ...]:
    """Take any sequence but text, bytes and mappings. of: what it holds, in words. One that fails midway is none."""
    found: tuple[object, ...] | None = None
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | memoryview | Mapping):
        with contextlib.suppress(Exception):  # an array without axes; and anybody's __iter__ may raise
            found = tuple(itertools.islice(value, MAX_ITEMS + 1))
    if found is None:
        refuse(refusal, field, f"a sequence of {of}", value, hint)
    if len(found) > MAX_ITEMS:
        refuse(refusal, field, f"at most {MAX_ITEMS} {of}", value)
    return found


def bytes_in_words(num_bytes: int) -> str:
    """Give a size as a reader compares it. Units: bytes."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"

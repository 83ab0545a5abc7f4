"""Entries: the values that a foreign file gives, read by key; a wrong one is refused with key, required and got.

Absent and null are the same. ``naming`` adds the file to whatever is refused inside its block.
Does not: read files, or know what a key means.
"""

import contextlib
import math
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, Self

from engine import fields
from engine.errors import ModelError

Kind = Literal["text", "integer", "number", "object"]

_WORDS: Final[dict[Kind, tuple[str, str]]] = {
    "text": ("text", "texts"),
    "integer": ("an integer", "integers"),
    "number": ("a number", "numbers"),
    "object": ("an object", "objects"),
}
_TYPES: Final[dict[Kind, tuple[type, ...]]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "object": (Mapping,),
}


@contextlib.contextmanager
def naming(path: Path) -> Generator[None]:
    """Put the file in front of every refusal of the block. Raises: ModelError."""
    try:
        yield
    except ModelError as error:
        message = f"{path}: {error}"
        raise ModelError(message) from error


class Entries:
    """One object of a file: string keys and whatever stands there."""

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        """Hold the values. where: the key of this object in the one around it, with a dot."""
        self._values = values
        self._where = where

    def __contains__(self, key: str) -> bool:
        """Whether the key is there with a value."""
        return self._values.get(key) is not None

    def name(self, key: str) -> str:
        """Give the key as messages write it."""
        return f"{self._where}{key}"

    def refuse(self, key: str, wanted: str, hint: str = "") -> NoReturn:
        """Refuse the value of a key. Raises: ModelError, always."""
        fields.refuse(ModelError, self.name(key), wanted, self._values.get(key), hint)

    def raw(self, key: str, default: Any = None) -> Any:
        """Give whatever stands there."""
        value = self._values.get(key)
        return default if value is None else value

    def integer(self, key: str, default: int | None = None, *, low: int = 1, at_most: int | None = None) -> int:
        """Read an integer; required when there is no default."""
        value = self._required(key, default)
        return fields.integer(self.name(key), value, refusal=ModelError, low=low, at_most=at_most)

    def number(
        self, key: str, default: float | None = None, *, low: float = 0.0, high: float = math.inf, low_open: bool = True
    ) -> float:
        """Read a finite number; required when there is no default."""
        value = self._required(key, default)
        return fields.number(self.name(key), value, low, high, refusal=ModelError, low_open=low_open)

    def flag(self, key: str, *, default: bool) -> bool:
        """Read true or false."""
        return fields.flag(self.name(key), self._required(key, default), refusal=ModelError)

    def text(self, key: str, default: str | None = None) -> str:
        """Read a text; required when there is no default."""
        value = self._required(key, default)
        if not isinstance(value, str):
            self.refuse(key, "text")
        return value

    def inner(self, key: str) -> "Entries":
        """Read an object inside this one, empty when it is absent."""
        value = self.raw(key, {})
        if not isinstance(value, Mapping):
            self.refuse(key, "an object")
        return Entries(value, f"{self.name(key)}.")

    def texts(self) -> dict[str, str]:
        """Read every value of this object as text."""
        return {key: self.text(key) for key in self._values}

    def listed(self, key: str, of: Kind, *, length: int | None = None) -> tuple[Any, ...]:
        """Read a list of one kind of items, empty when it is absent. length: what it must be when it is not."""
        value = self.raw(key, [])
        one, many = _WORDS[of]
        if not isinstance(value, list | tuple):
            self.refuse(key, f"a list of {many}")
        for at, item in enumerate(value):
            if not isinstance(item, _TYPES[of]) or isinstance(item, bool):
                fields.refuse(ModelError, f"{self.name(key)}[{at}]", one, item)
        if length is not None and key in self and len(value) != length:
            message = f"{self.name(key)} must hold {length} {many}, got {len(value)}"
            raise ModelError(message)
        return tuple(value)

    def each(self, key: str, read: Callable[[Self], Any]) -> list[Any]:
        """Read a list of objects one by one, empty when it is absent."""
        found = self.listed(key, "object")
        return [read(type(self)(item, f"{self.name(key)}[{at}].")) for at, item in enumerate(found)]

    def _required(self, key: str, default: Any) -> Any:
        value = self.raw(key, default)
        if value is None:
            message = f"the key {self.name(key)!r} is missing"
            raise ModelError(message)
        return value

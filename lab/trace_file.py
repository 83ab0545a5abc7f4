"""Trace files: compressed JSON read within limits, and every way in which one can be wrong said in words.

Does not: know what a header or a step holds (``trace.py``, ``store.py``). A record's own type hints are what its
values are held against.
"""

import collections.abc
import contextlib
import dataclasses
import gzip
import json
import os
import types
import typing
import zlib
from pathlib import Path
from typing import Any, Final

from engine.errors import TraceError
from engine.fields import bytes_in_words, cut, shown

MOST_BYTES: Final = 1 << 28  # of JSON; ten thousand steps of a batch of 64 take a tenth of it
_RECORD: Final = "record one with `stepscope trace record --out FILE`"


def trace_source(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to read. Raises: TraceError for what names none, for a folder, for nothing there."""
    try:
        source = Path(path)
        is_folder, is_there = source.is_dir(), source.exists()
    except (OSError, TypeError, ValueError) as error:
        message = f"a trace is read from a file, and {shown(path)} cannot name one: {cut(error)}"
        raise TraceError(message) from error
    if is_folder:
        found = sorted(child.name for child in _children(source) if child.name.endswith(".json.gz"))
        hint = f"it holds {shown(found[0])}" if found else _RECORD
        message = f"{source} is a folder, a trace is a file; {hint}"
        raise TraceError(message)
    if not is_there:
        message = f"there is no trace file {source}; record one with `stepscope trace record --out {source}`"
        raise TraceError(message)
    return source


def _children(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):  # only for the hint
        return list(folder.iterdir())
    return []


def read_content(path: Path, *, most_bytes: int = MOST_BYTES) -> Any:
    """Read the JSON of a trace file. Raises: TraceError, which says what is wrong with the file."""
    try:
        with gzip.open(path, "rb") as file:
            data = file.read(most_bytes + 1)
        content = None if len(data) > most_bytes else json.loads(data)
    except gzip.BadGzipFile as error:
        message = f"{path} cannot be read as a trace: it is not gzip-compressed ({cut(error)}); {_RECORD}"
        raise TraceError(message) from error
    except (EOFError, zlib.error) as error:
        message = f"{path} cannot be read as a trace: it is cut off or damaged ({cut(error)}); record it again"
        raise TraceError(message) from error
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or cut(error)}"
        raise TraceError(message) from error
    except (ValueError, RecursionError, MemoryError) as error:
        message = f"{path} cannot be read as a trace: it holds no such JSON ({cut(error)}); {_RECORD}"
        raise TraceError(message) from error
    if len(data) > most_bytes:
        message = f"{path} cannot be read as a trace: it holds more than {bytes_in_words(most_bytes)} of JSON"
        raise TraceError(message)
    return content


def require_types(record: Any, name: str) -> None:
    """Hold a record's values, and those of the records in it, against their type hints. Raises: TypeError."""
    for field, hint in typing.get_type_hints(type(record)).items():
        value = getattr(record, field)
        if not _fits(value, hint):
            message = f"{name}.{field} is {shown(value)}"
            raise TypeError(message)


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, inner[0]) for item in value)
    if origin is collections.abc.Mapping:
        is_mapping = isinstance(value, collections.abc.Mapping)
        return is_mapping and all(_fits(key, inner[0]) and _fits(item, inner[1]) for key, item in value.items())
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return isinstance(value, hint) and all(_fits(getattr(value, name), one) for name, one in hints.items())
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint)

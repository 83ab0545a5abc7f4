"""Columns: snapshots as compressed columns of integers, and back, exactly.

The record types themselves are the schema: every leaf of the snapshot tree is one column over all steps, with its own
column of counts where the tree has a tuple or an array. A column is stored as the differences to the value ``lag``
places before, for the lag that compresses best, in the narrowest integers, one byte plane after the other. Block
tables are turned into deltas per request first. Strings are interned once a file. Steps are cut into windows of 200,
each decoded on first use.

Does not: know files or headers (``trace.py``), or the meaning of a field.
Source: column stores; difference coding with byte planes.
"""

import base64
import binascii
import dataclasses
import functools
import types
import typing
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from engine import fields
from engine.errors import TraceError
from lab.coherence import require_coherent
from lab.snapshot import SNAPSHOT_VERSION, MetadataView, StepSnapshot

WINDOW: Final = 200
_LIMIT: Final = 1 << 26  # more values than this in one window: a damaged or hostile file
_DAMAGE: Final = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError, StopIteration, zlib.error,
    binascii.Error,
)  # fmt: skip
_BLOCK_TABLES: Final = "block_tables"
_DELTA_TYPE: Final = tuple[tuple[int, tuple[int, ...]], ...]

Table = tuple[int, ...]
Delta = tuple[int, Table]


@functools.cache
def _fields(kind: type, version: int) -> tuple[tuple[str, object], ...]:
    """Return the fields that a record has in a version, with their types; the others have defaults."""
    hints = typing.get_type_hints(kind)
    if kind is MetadataView:
        hints[_BLOCK_TABLES] = _DELTA_TYPE
    known = [field for field in dataclasses.fields(kind) if field.metadata.get("since", 1) <= version]
    return tuple((field.name, hints[field.name]) for field in known)


@functools.cache
def _shape_of(hint: object) -> tuple[str, tuple[object, ...]]:
    """Sort a type hint into one of the few forms that the snapshot uses."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (np.ndarray, npt.NDArray):  # since numpy 2.5 the second is a name of its own
        return "array", ()
    if origin is tuple:
        return ("list", (args[0],)) if args[-1] is Ellipsis else ("pair", args)
    if origin in (types.UnionType, typing.Union):
        return "optional", tuple(arg for arg in args if arg is not type(None))
    for leaf in (int, bool, str):
        if hint is leaf:
            return leaf.__name__, ()
    return "record", ()


def table_deltas(request_ids: Sequence[int], tables: Sequence[Table], known: dict[int, Table]) -> tuple[Delta, ...]:
    """Turn block tables into (blocks cut from the end, blocks added) against each request's table before.

    ``known`` holds the tables before and is brought up to date.
    """
    deltas: list[Delta] = []
    for request_id, table in zip(request_ids, tables, strict=True):
        before = known.get(request_id, ())
        keep = len(before)
        if table[:keep] != before:
            differing = (at for at, (a, b) in enumerate(zip(before, table, strict=False)) if a != b)
            keep = next(differing, min(keep, len(table)))
        deltas.append((len(before) - keep, table[keep:]))
        known[request_id] = table
    return tuple(deltas)


def apply_deltas(request_ids: Sequence[int], deltas: Sequence[Delta], known: dict[int, Table]) -> tuple[Table, ...]:
    """Turn deltas back into block tables; the inverse of ``table_deltas``."""
    tables: list[Table] = []
    for request_id, (cut, added) in zip(request_ids, deltas, strict=True):
        before = known.get(request_id, ())
        table = before[: len(before) - cut] + added if cut or added else before
        known[request_id] = table
        tables.append(table)
    return tuple(tables)


class _Writer:
    """Takes snapshots apart into columns."""

    def __init__(self, strings: dict[str, int]) -> None:
        self.strings = strings
        self.columns: dict[str, list[int]] = {}
        self._known: dict[int, Table] = {}

    def _column(self, path: str) -> list[int]:
        return self.columns.setdefault(path, [])

    def intern(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def write(self, value: typing.Any, hint: object, path: str) -> None:
        form, parts = _shape_of(hint)
        if form in ("int", "bool"):
            self._column(path).append(int(value))
        elif form == "str":
            self._column(path).append(self.intern(value))
        elif form == "optional":
            self._column(path + "?").append(int(value is not None))
            if value is not None:
                self.write(value, parts[0], path)
        elif form == "list":
            self._column(path + "#").append(len(value))
            if parts[0] is int:
                self._column(path).extend(value)
                return
            for item in value:
                self.write(item, parts[0], path)
        elif form == "pair":
            for at, (item, part) in enumerate(zip(value, parts, strict=True)):
                self.write(item, part, f"{path}.{at}")
        elif form == "array":
            self._write_array(value, path)
        else:
            self._write_record(value, hint, path)  # type: ignore[arg-type]

    def _write_record(self, value: typing.Any, kind: type, path: str) -> None:
        for name, hint in _fields(kind, SNAPSHOT_VERSION):
            part = getattr(value, name)
            if name == _BLOCK_TABLES:
                part = table_deltas(value.request_ids.tolist(), part, self._known)
            self.write(part, hint, f"{path}.{name}")

    def _write_array(self, value: np.ndarray, path: str) -> None:
        self._column(path + ":dtype").append(self.intern(value.dtype.str))
        self._column(path + ":ndim").append(value.ndim)
        self._column(path + "#").extend(value.shape)
        flat = np.ascontiguousarray(value).reshape(-1)
        if flat.dtype.kind == "f":
            flat = flat.view(f"<i{flat.dtype.itemsize}")
        self._column(path).extend(flat.tolist())


class _Reader:
    """Puts columns together into snapshots again, in the order in which they were taken apart."""

    def __init__(self, columns: Mapping[str, list[int]], strings: Sequence[str], version: int) -> None:
        self._columns = {path: iter(column) for path, column in columns.items()}
        self._strings, self._version = strings, version
        self._known: dict[int, Table] = {}

    def _next(self, path: str) -> int:
        return next(self._columns[path])

    def _take(self, path: str, count: int) -> list[int]:
        if count == 0:
            return []
        column = self._columns[path]
        return [next(column) for _ in range(count)]

    def read(self, hint: object, path: str) -> typing.Any:
        form, parts = _shape_of(hint)
        if form in ("int", "bool", "str"):
            number = self._next(path)
            return number if form == "int" else bool(number) if form == "bool" else self._strings[number]
        if form == "optional":
            return self.read(parts[0], path) if self._next(path + "?") else None
        if form == "list":
            count = self._next(path + "#")
            if parts[0] is int:
                return tuple(self._take(path, count))
            return tuple([self.read(parts[0], path) for _ in range(count)])
        if form == "pair":
            return tuple([self.read(part, f"{path}.{at}") for at, part in enumerate(parts)])
        if form == "array":
            return self._read_array(path)
        return self._read_record(hint, path)  # type: ignore[arg-type]

    def _read_record(self, kind: type, path: str) -> object:
        values = {name: self.read(hint, f"{path}.{name}") for name, hint in _fields(kind, self._version)}
        if kind is MetadataView:
            values[_BLOCK_TABLES] = apply_deltas(values["request_ids"].tolist(), values[_BLOCK_TABLES], self._known)
        return kind(**values)

    def _read_array(self, path: str) -> np.ndarray:
        dtype = np.dtype(self._strings[self._next(path + ":dtype")])
        if dtype.kind not in "biuf" or dtype.itemsize > 8:
            message = f"an array of {dtype} cannot be right"
            raise ValueError(message)
        shape = self._take(path + "#", self._next(path + ":ndim"))
        values = self._take(path, int(np.prod(shape)))
        if dtype.kind == "f":
            return np.array(values, f"<i{dtype.itemsize}").view(dtype).reshape(shape)
        return np.array(values, dtype).reshape(shape)


def _pack_column(values: np.ndarray, lag: int) -> bytes:
    shifted = values.copy()
    if lag:
        shifted[lag:] -= values[:-lag]
    widths = (width for width in (1, 2, 4, 8) if _fits(shifted, width))
    width = next(widths)
    planes = shifted.astype(f"<i{width}").view(np.uint8).reshape(-1, width).T
    return bytes([width]) + zlib.compress(np.ascontiguousarray(planes).tobytes(), 9)


def _fits(values: np.ndarray, width: int) -> bool:
    info = np.iinfo(f"i{width}")
    return bool(len(values) == 0 or (values.min() >= info.min and values.max() <= info.max))


def _encode_column(column: list[int], num_steps: int) -> list[object]:
    values = np.array(column, np.int64)
    whole, rest = divmod(len(column), num_steps)
    lags = [lag for lag in sorted({0, 1, 1 if rest else whole}) if lag <= len(values)]
    packed, lag = min(((_pack_column(values, lag), lag) for lag in lags), key=lambda pair: len(pair[0]))
    return [len(values), lag, base64.b64encode(packed).decode()]


def _decode_column(stored: Sequence[typing.Any]) -> list[int]:
    count, lag, text = stored
    packed = base64.b64decode(text, validate=True)
    width = packed[0]
    if not 0 <= count <= _LIMIT or width not in (1, 2, 4, 8) or not 0 <= lag <= count:
        message = f"a column of {count} values of {width} bytes with lag {lag} cannot be right"
        raise ValueError(message)
    inflater = zlib.decompressobj()
    raw = inflater.decompress(packed[1:], count * width)
    planes = np.frombuffer(raw, np.uint8).reshape(width, count)
    values = np.ascontiguousarray(planes.T).reshape(-1).view(f"<i{width}").astype(np.int64)
    if lag:
        whole = np.zeros(-(-count // lag) * lag, np.int64)
        whole[:count] = values
        values = whole.reshape(-1, lag).cumsum(axis=0).reshape(-1)[:count]
    return values.tolist()


def encode_steps(steps: Sequence[StepSnapshot]) -> dict[str, object]:
    """Return the JSON form of the steps: interned strings and windows of columns."""
    strings: dict[str, int] = {}
    windows: list[dict[str, object]] = []
    for first in range(0, len(steps), WINDOW):
        part = steps[first : first + WINDOW]
        writer = _Writer(strings)
        for step in part:
            writer.write(step, StepSnapshot, "")
        columns = {path: _encode_column(column, len(part)) for path, column in writer.columns.items()}
        windows.append({"num_steps": len(part), "columns": columns})
    return {"strings": list(strings), "windows": windows}


class StoredSteps(Sequence[StepSnapshot]):
    """The steps of a trace file, decoded a window at a time on first use.

    Raises: TraceError from any access that meets a damaged window.
    """

    def __init__(self, stored: Mapping[str, typing.Any], version: int = SNAPSHOT_VERSION) -> None:
        """Check the outline; the columns are checked when they are decoded. version: of the snapshots."""
        self._version = version
        self._strings: list[str] = list(stored["strings"])
        self._windows: list[Mapping[str, typing.Any]] = list(stored["windows"])
        self._decoded: dict[int, list[StepSnapshot]] = {}
        sizes = [window["num_steps"] for window in self._windows]
        if any(size != WINDOW for size in sizes[:-1]) or not all(1 <= size <= WINDOW for size in sizes[-1:]):
            message = f"windows of {sizes} steps; each but the last must hold {WINDOW}"
            raise ValueError(message)
        self._length = sum(sizes)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> StepSnapshot: ...
    @overload
    def __getitem__(self, at: slice) -> list[StepSnapshot]: ...
    def __getitem__(self, at: int | slice) -> StepSnapshot | list[StepSnapshot]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(self._length))]
        index = at + self._length if at < 0 else at
        if not 0 <= index < self._length:
            message = f"step index {at} is outside the {self._length} recorded steps"
            raise IndexError(message)
        return self._window(index // WINDOW)[index % WINDOW]

    def __iter__(self) -> Iterator[StepSnapshot]:
        for number in range(len(self._windows)):
            yield from self._window(number)

    def _window(self, number: int) -> list[StepSnapshot]:
        if number not in self._decoded:
            window = self._windows[number]
            try:
                if sum(stored[0] for stored in window["columns"].values()) > _LIMIT:
                    message = f"more than {_LIMIT} values in a window cannot be right"
                    raise ValueError(message)
                columns = {path: _decode_column(stored) for path, stored in window["columns"].items()}
                reader = _Reader(columns, self._strings, self._version)
                steps: list[StepSnapshot] = [reader.read(StepSnapshot, "") for _ in range(window["num_steps"])]
                for step in steps:
                    require_coherent(step)
            except _DAMAGE as error:
                why = f"{type(error).__name__}: {fields.cut(error)}"
                message = f"window {number} of the trace is damaged ({why}); record it again"
                raise TraceError(message) from error
            self._decoded[number] = steps
        return self._decoded[number]

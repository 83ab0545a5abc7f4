"""Columns: snapshots as compressed columns of integers, and back, exactly.

The record types themselves are the schema: every leaf of the snapshot tree is one column over all steps, with its own
column of counts where the tree has a tuple or an array (``columns.py`` makes bytes of them). Block tables are turned
into deltas per request first. Strings are interned once a file. Steps are cut into windows of 200, each decoded on
first use, and by columns too: each place of the tree for all of its steps at once.

Does not: know files or headers (``trace.py``), or the meaning of a field.
Source: column stores; difference coding with byte planes.
"""

import binascii
import dataclasses
import functools
import itertools
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
from lab.collector import collector_held
from lab.columns import MOST_VALUES, all_of, cut_arrays, cut_tuples, decode_column, encode_column
from lab.snapshot import SNAPSHOT_VERSION, MetadataView, StepSnapshot

WINDOW: Final = 200
_DAMAGE: Final = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError, StopIteration, zlib.error,
    binascii.Error,
)  # fmt: skip
_BLOCK_TABLES: Final = "block_tables"
_NOTHING: Final = np.zeros(0, np.int64)
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
    """Puts columns together into snapshots again: each place of the tree for all steps at once, from the leaves up."""

    def __init__(self, columns: Mapping[str, np.ndarray], strings: Sequence[str], version: int) -> None:
        self._columns, self._strings, self._version = columns, strings, version

    def _column(self, path: str) -> list[int]:
        column = self._columns.get(path)  # a place that no step has had has no column
        return [] if column is None else column.tolist()

    def _texts(self, numbers: list[int]) -> list[str]:
        if min(numbers, default=0) < 0:  # Python would count it from the end
            message = f"string {min(numbers)} is not in the table"
            raise ValueError(message)
        return [self._strings[number] for number in numbers]

    def read(self, hint: object, path: str) -> list[typing.Any]:
        """Return every value that stands at a place, in the order in which they were written."""
        form, parts = _shape_of(hint)
        if form in ("int", "bool", "str"):
            column = self._column(path)
            if form == "str":
                return self._texts(column)
            return column if form == "int" else [*map(bool, column)]
        if form == "optional":
            present = iter(self.read(parts[0], path))
            return [*all_of(present, [next(present) if flag else None for flag in self._column(path + "?")])]
        if form == "list":
            return cut_tuples(self.read(parts[0], path), self._column(path + "#"))
        if form == "pair":
            return [*zip(*[self.read(part, f"{path}.{at}") for at, part in enumerate(parts)], strict=True)]
        return self._read_arrays(path) if form == "array" else self._read_records(hint, path)  # type: ignore[arg-type]

    def _read_records(self, kind: type, path: str) -> list[object]:
        known = _fields(kind, self._version)
        values = {name: self.read(hint, f"{path}.{name}") for name, hint in known}
        if kind is MetadataView:
            before: dict[int, Table] = {}
            deltas = zip(values["request_ids"], values[_BLOCK_TABLES], strict=True)
            values[_BLOCK_TABLES] = [apply_deltas(ids.tolist(), changes, before) for ids, changes in deltas]
        rows = [*zip(*values.values(), strict=True)]
        names = tuple(values)
        if names != tuple(field.name for field in dataclasses.fields(kind)[: len(names)]):
            return [kind(**dict(zip(names, row, strict=True))) for row in rows]
        if not all(_is_leaf(hint) for _, hint in known):
            return [*itertools.starmap(kind, rows)]
        made = {row: kind(*row) for row in set(rows)}  # the same few conditions, checks and spans stand in every step
        return [made[row] for row in rows]

    def _read_arrays(self, path: str) -> list[np.ndarray]:
        kinds = [np.dtype(text) for text in self._texts(self._column(path + ":dtype"))]
        values = self._columns.get(path, _NOTHING)
        return cut_arrays(values, kinds, self._column(path + ":ndim"), self._column(path + "#"))


def _is_leaf(hint: object) -> bool:
    form, parts = _shape_of(hint)
    return form in ("int", "bool", "str") or (form == "optional" and _is_leaf(parts[0]))


def encode_steps(steps: Sequence[StepSnapshot]) -> dict[str, object]:
    """Return the JSON form of the steps: interned strings and windows of columns."""
    strings: dict[str, int] = {}
    windows: list[dict[str, object]] = []
    for first in range(0, len(steps), WINDOW):
        part = steps[first : first + WINDOW]
        writer = _Writer(strings)
        for step in part:
            writer.write(step, StepSnapshot, "")
        columns = {path: encode_column(column, len(part)) for path, column in writer.columns.items()}
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
        other = [text for text in self._strings if not isinstance(text, str)]
        if other:
            message = f"the table of strings holds {fields.shown(other[0])}"
            raise TypeError(message)
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
                if sum(stored[0] for stored in window["columns"].values()) > MOST_VALUES:
                    message = f"more than {MOST_VALUES} values in a window cannot be right"
                    raise ValueError(message)
                columns = {path: decode_column(stored) for path, stored in window["columns"].items()}
                reader = _Reader(columns, self._strings, self._version)
                with collector_held():
                    steps: list[StepSnapshot] = reader.read(StepSnapshot, "")
                if len(steps) != window["num_steps"]:
                    message = f"{len(steps)} steps where {window['num_steps']} are promised"
                    raise ValueError(message)
                for step in steps:
                    require_coherent(step)
            except _DAMAGE as error:
                why = f"{type(error).__name__}: {fields.cut(error)}"
                message = f"window {number} of the trace is damaged ({why}); record it again"
                raise TraceError(message) from error
            self._decoded[number] = steps
        return self._decoded[number]

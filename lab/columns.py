"""Columns of integers as text for a file, and columns cut into the tuples and arrays that they were made of.

A column is stored as the differences to the value ``lag`` places before, for the lag that compresses best, in the
narrowest integers, one byte plane after the other.

Does not: know what a column stands for (``store.py``). Torch-free.
Source: column stores; difference coding with byte planes.
"""

import base64
import itertools
import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

MOST_VALUES: Final = 1 << 26  # more than this in one column: a damaged or hostile file


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


def encode_column(column: list[int], num_steps: int) -> list[object]:
    """Return a column as (count, lag, text): the shortest of a few ways to write it."""
    values = np.array(column, np.int64)
    whole, rest = divmod(len(column), num_steps)
    lags = [lag for lag in sorted({0, 1, 1 if rest else whole}) if lag <= len(values)]
    packed, lag = min(((_pack_column(values, lag), lag) for lag in lags), key=lambda pair: len(pair[0]))
    return [len(values), lag, base64.b64encode(packed).decode()]


def decode_column(stored: Sequence[Any]) -> np.ndarray:
    """Return the values of a column that ``encode_column`` wrote. Raises: ValueError for one that it cannot have."""
    count, lag, text = stored
    packed = base64.b64decode(text, validate=True)
    width = packed[0]
    if not 0 <= count <= MOST_VALUES or width not in (1, 2, 4, 8) or not 0 <= lag <= count:
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
    return values


def cut_arrays(
    values: np.ndarray, kinds: Sequence[np.dtype], num_axes: Sequence[int], sizes: Sequence[int]
) -> list[np.ndarray]:
    """Cut a column into arrays, each of its kind and shape. sizes: of every axis of each array, in order."""
    is_one_kind = len(set(kinds)) == 1
    values = typed(values, kinds[0]) if is_one_kind else values
    rest = iter(sizes)
    arrays: list[np.ndarray] = []
    at = 0
    for kind, count in zip(kinds, num_axes, strict=True):
        shape = [next(rest) for _ in range(count)]
        end = at + math.prod(shape)
        part = values[at:end] if is_one_kind else typed(values[at:end], kind)
        arrays.append(part if shape == [len(part)] else part.reshape(shape))
        at = end
    return all_of(iter(values[at:]), arrays)


def all_of(rest: Iterator[object], made: list[Any]) -> list[Any]:
    """Return what was made of a column that is used up."""
    if next(rest, None) is not None:
        message = "a column holds more values than its counts say"
        raise ValueError(message)
    return made


def cut_tuples(items: Sequence[Any], counts: Sequence[int]) -> list[tuple[Any, ...]]:
    """Cut a column into tuples of so many values each."""
    if sum(counts) != len(items) or min(counts, default=0) < 0:
        message = f"counts with the sum {sum(counts)} for {len(items)} values"
        raise ValueError(message)
    ends = [*itertools.accumulate(counts, initial=0)]
    return [tuple(items[start:end]) for start, end in itertools.pairwise(ends)]


def typed(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a column in the type of the array that it was made of; floats were written as their bits."""
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        message = f"an array of {dtype} cannot be right"
        raise ValueError(message)
    stored = np.dtype(f"<i{dtype.itemsize}") if dtype.kind == "f" else dtype
    typed = values.astype(stored)
    if not np.array_equal(typed, values):
        message = f"values beyond {dtype} cannot be right"
        raise ValueError(message)
    return typed.view(dtype) if dtype.kind == "f" else typed

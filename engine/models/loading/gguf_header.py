"""The GGUF container: keys, values and where each tensor lies.

Parsed by hand because the ``gguf`` package takes seconds for a vocabulary of 50,000 strings; sizes of tensor types
and dequantisation stay with the package. Every read is bounds-checked, so a damaged file is an error and never a
guess. Does not: know what keys mean (``loading/gguf.py``). Source: the GGUF specification, versions 2 and 3.
"""

import dataclasses
import math
import mmap
import struct
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.errors import ModelError

_MAGIC: Final = b"GGUF"
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32


@dataclasses.dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as it lies in the file.

    Shapes: shape as the engine writes it (rows first; GGUF lists dimensions the other way round); data
    [rows, bytes of a row] uint8. type_name: the package's name, such as "Q4_1". Valid: as long as the header.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    data: npt.NDArray[np.uint8]


@dataclasses.dataclass(frozen=True, slots=True)
class GGUFHeader:
    """Everything in a file that is no tensor data, and views of that."""

    values: dict[str, Any]
    tensors: dict[str, StoredTensor]


def read_header(path: Path) -> GGUFHeader:
    """Map a file and index it. Raises: ModelError for a file that is no GGUF, truncated or damaged."""
    with path.open("rb") as file:
        magic = file.read(4)
        if magic != _MAGIC:
            message = f"{path} is not a GGUF file: it must begin with {_MAGIC!r}, got {magic!r}"
            raise ModelError(message)
        buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return _Cursor(buffer).header()
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError, struct.error, MemoryError) as error:
        message = f"{path} is truncated or damaged ({error}); download it again"
        raise ModelError(message) from error


class _Cursor:
    """Reads values one after the other from a mapped file."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self._buffer = buffer
        self._offset = len(_MAGIC)

    def header(self) -> GGUFHeader:
        version = self._scalar("I")
        if version not in (2, 3):
            message = f"GGUF version 2 or 3 in little-endian order is required, got {version}"
            raise ValueError(message)
        num_tensors, num_values = self._scalar("Q"), self._scalar("Q")
        values: dict[str, Any] = {}
        for _ in range(num_values):
            key = self._string()
            values[key] = self._value(self._scalar("I"))
        infos = [self._tensor_info() for _ in range(num_tensors)]
        alignment = int(values.get("general.alignment", _DEFAULT_ALIGNMENT))
        start = -(-self._offset // alignment) * alignment
        tensors = [self._tensor(start, info) for info in infos]
        return GGUFHeader(values, {tensor.name: tensor for tensor in tensors})

    def _take(self, num_bytes: int) -> int:
        """Move on by num_bytes and give the offset before them."""
        offset, self._offset = self._offset, self._offset + num_bytes
        if self._offset > len(self._buffer):
            message = f"the file ends at byte {len(self._buffer)}, inside data up to byte {self._offset}"
            raise ValueError(message)
        return offset

    def _scalar(self, code: str) -> Any:
        return struct.unpack_from(f"<{code}", self._buffer, self._take(struct.calcsize(f"<{code}")))[0]

    def _string(self) -> str:
        length = self._scalar("Q")
        offset = self._take(length)
        return self._buffer[offset : offset + length].decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            item_kind, count = self._scalar("I"), self._scalar("Q")
            if item_kind in _SCALARS:
                layout = f"<{count}{_SCALARS[item_kind]}"
                return struct.unpack_from(layout, self._buffer, self._take(struct.calcsize(layout)))
            return tuple(self._value(item_kind) for _ in range(count))
        if kind not in _SCALARS:
            message = f"value type {kind} is unknown"
            raise ValueError(message)
        return self._scalar(_SCALARS[kind])

    def _tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        """Read name, shape (rows first), type number and offset of a tensor."""
        name = self._string()
        dimensions = tuple(self._scalar("Q") for _ in range(self._scalar("I")))
        return name, dimensions[::-1], self._scalar("I"), self._scalar("Q")

    def _tensor(self, start: int, info: tuple[str, tuple[int, ...], int, int]) -> StoredTensor:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        name, shape, type_number, offset = info
        kind = GGMLQuantizationType(type_number)
        elements_per_block, bytes_per_block = GGML_QUANT_SIZES[kind]
        if not shape or shape[-1] % elements_per_block:
            message = f"tensor {name!r} of shape {shape} is not a whole number of {kind.name} blocks"
            raise ValueError(message)
        row_bytes = shape[-1] // elements_per_block * bytes_per_block
        self._offset = start + offset
        rows = math.prod(shape[:-1])
        begin = self._take(rows * row_bytes)
        data = np.frombuffer(self._buffer, np.uint8, rows * row_bytes, begin).reshape(rows, row_bytes)
        return StoredTensor(name, shape, kind.name, data)

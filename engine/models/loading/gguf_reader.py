"""Opening a GGUF file with the ``gguf`` package's reader.

The reader itself takes whatever lies past the end of a file for an empty array, and then follows a damaged count for
as long as memory lasts; here each of its reads is checked, and its exceptions become errors that name the file.
Nothing stays open or mapped. Import this file inside functions only: a load from the converted cache goes without the
package. Does not: know what keys mean (``loading/gguf.py``). Source: the ``gguf`` package.
"""

import dataclasses
import re
import traceback
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader

from engine.errors import ModelError
from engine.fields import cut

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_NUMPY_SCALAR: Final = re.compile(r"np\.\w+\((\w+)\)")  # as it stands in the package's messages
_MAX_READS: Final = 1 << 22  # twice what a vocabulary of 262,144 tokens takes; a damaged count may ask for billions


@dataclasses.dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in the file.

    Shapes: shape as the engine writes it (rows first; GGUF lists dimensions the other way round).
    Units: offset and num_bytes in bytes from the start of the file. type_name: the package's name, such as "Q4_1".
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    num_bytes: int


class _CheckedReader(GGUFReader):
    """Reads plain little-endian arrays, a quarter of the time of the package's memory-mapped ones."""

    _num_reads = 0

    def _get(
        self,
        offset: int,
        dtype: npt.DTypeLike,
        count: int = 1,
        override_order: Literal["I", "S", "<"] | None = None,
    ) -> npt.NDArray[Any]:
        layout = np.dtype(dtype).newbyteorder("<")
        start, length = int(offset), int(count)
        end = start + layout.itemsize * length
        if end > len(self.data):
            message = f"the file ends at byte {len(self.data)}, inside data up to byte {end}"
            raise ValueError(message)
        self._num_reads += 1
        if self._num_reads > _MAX_READS:
            message = f"its header holds more than {_MAX_READS} values"
            raise ValueError(message)
        return np.ndarray((length,), layout, self.data, start)


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
    """Read a file's metadata by key and its tensors by name. Order: the file's.

    Raises: ModelError for a file that is no GGUF, of another version or byte order, truncated or damaged.
    """
    with path.open("rb") as file:
        magic, version = file.read(4), file.read(4)
    if magic != _MAGIC:
        message = f"{path} is not a GGUF file: it must begin with {_MAGIC!r}, got {magic!r}"
        raise ModelError(message)
    try:
        if len(version) == 4 and int.from_bytes(version, "little") not in _VERSIONS:
            message = f"GGUF version 2 or 3 in little-endian order is required, got {int.from_bytes(version, 'little')}"
            raise ValueError(message)  # noqa: TRY301 (one place words what is wrong with the file)
        with np.errstate(all="raise"):  # sizes that overflow are damage, too
            reader = _CheckedReader(path)
        fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        values = {key: field.contents() for key, field in fields.items()}
        return values, {tensor.name: _stored(tensor) for tensor in reader.tensors}
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        traceback.clear_frames(error.__traceback__)  # they hold the reader, and with it the mapping
        reason = cut(_NUMPY_SCALAR.sub(r"\1", str(error)))
        message = f"{path} is truncated or damaged ({reason}); download it again"
        raise ModelError(message) from error


def _stored(tensor: Any) -> StoredTensor:
    shape = tuple(int(size) for size in reversed(tensor.shape))
    return StoredTensor(tensor.name, shape, tensor.tensor_type.name, int(tensor.data_offset), int(tensor.n_bytes))

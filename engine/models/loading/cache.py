"""The converted copy of a GGUF file: weights in the engine's dtype and layout, to be mapped into memory.

Dequantising takes seconds, mapping takes none, and mapped pages are shared between processes. One safetensors file
holds the tensors, and in its header the configuration, the tokenizer and a checksum of each tensor. Its name tells
source, dtype and format. A file that fails a check counts as absent and is written anew; when it cannot be written
(full disk, read-only directory) the engine goes on without it. Does not: ever raise for a bad cache.
"""

import contextlib
import dataclasses
import glob
import hashlib
import json
import math
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch

from engine.models.catalog import cache_dir
from engine.models.config import ModelConfig, config_from_dict
from engine.models.loading.fingerprint import weight_hash
from engine.models.loading.layout import weight_shapes
from engine.models.loading.tokenizer import SavedTokenizer
from engine.models.tokenizer import SpecialTokens

FORMAT_VERSION: Final = 2  # 2: weights were seen to be finite, values to be in range
_ALIGNMENT = 4096  # the first tensor starts on a page, and the sizes of matrices keep the others on cache lines
_NO_CHECKSUM = "0" * 8
_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


@dataclasses.dataclass(frozen=True, slots=True)
class Converted:
    """Everything that a model needs, ready to use. weights: engine names (``loading/layout.py``)."""

    config: ModelConfig
    weights: dict[str, torch.Tensor]
    tokenizer: SavedTokenizer


def converted_path(source: Path, dtype: torch.dtype) -> Path:
    """Give the cache file for a source as it is now; it changes with the source's size, time or content."""
    stat = source.stat()
    facts = (weight_hash([source]), stat.st_size, stat.st_mtime_ns, str(dtype), FORMAT_VERSION)
    key = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    place = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:8]
    return cache_dir() / "converted" / f"{source.stem[:60]}-{place}-{_NAMES[dtype]}-{key}.safetensors"


def load_converted(path: Path) -> Converted | None:
    """Map a cache file. Gives None when it is absent, damaged, or of another format."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, str] = file.metadata() or {}
            checksums: dict[str, str] = json.loads(header["checksums"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if {name: _checksum(tensor) for name, tensor in weights.items()} != checksums:
            return None
        config = config_from_dict(json.loads(header["config"]))
        return Converted(config, weights, _tokenizer_from_json(header["tokenizer"]))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None


def store_converted(
    path: Path,
    config: ModelConfig,
    tokenizer: SavedTokenizer,
    weights: Iterator[tuple[str, torch.Tensor]],
    *,
    dtype: torch.dtype,
) -> bool:
    """Write a cache file, whole or not at all; weights pass through one by one. Gives False when it cannot be written.

    path: what ``converted_path`` gave; files of the same source that it supersedes are removed.
    Raises: what reading the weights raises, apart from OSError.
    """
    header = _header(config, tokenizer, dtype)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(path.parent).free < 2 * header.num_bytes:
            return False
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                _write(file, header, weights)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _remove_older(path)
    except OSError:
        return False
    return True


def _remove_older(current: Path) -> None:
    """Remove files that differ in the key only: the same source and dtype, as they were before."""
    family = current.name.rpartition("-")[0]
    for other in current.parent.glob(f"{glob.escape(family)}-*.safetensors"):
        if other != current:
            with contextlib.suppress(OSError):  # another process may be removing it too
                other.unlink()


@dataclasses.dataclass(frozen=True, slots=True)
class _Header:
    """The safetensors header, made by hand: the library neither aligns to pages nor writes tensor by tensor."""

    entries: dict[str, Any]
    num_bytes: int

    def encode(self, checksums: Mapping[str, str]) -> bytes:
        """Give the bytes before the data. They are as many for any checksums, so that these can follow later."""
        metadata = self.entries["__metadata__"] | {"checksums": json.dumps(checksums)}
        header = json.dumps(self.entries | {"__metadata__": metadata}).encode()
        header += b" " * (-(len(header) + 8) % _ALIGNMENT)
        return len(header).to_bytes(8, "little") + header


def _header(config: ModelConfig, tokenizer: SavedTokenizer, dtype: torch.dtype) -> _Header:
    metadata = {"config": json.dumps(config.to_dict()), "tokenizer": _tokenizer_to_json(tokenizer)}
    entries: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, shape in weight_shapes(config).items():
        end = offset + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    return _Header(entries, offset)


def _write(file: BinaryIO, header: _Header, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
    checksums = {name: _NO_CHECKSUM for name in header.entries if name != "__metadata__"}
    file.write(header.encode(checksums))
    for expected, (name, tensor) in zip(list(checksums), weights, strict=True):
        assert name == expected, f"weights must come in the order of weight_shapes: {expected}, got {name}"
        checksums[name] = _checksum(tensor)
        file.write(_bytes_of(tensor))
    file.seek(0)
    file.write(header.encode(checksums))


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return tensor.contiguous().view(torch.uint8).numpy().data.cast("B")


def _checksum(tensor: torch.Tensor) -> str:
    return f"{zlib.crc32(_bytes_of(tensor)):08x}"


def _tokenizer_to_json(tokenizer: SavedTokenizer) -> str:
    special: dict[str, Any] = dataclasses.asdict(tokenizer.special)
    for name in ("eos_token_ids", "control_ids"):
        special[name] = sorted(special[name])
    return json.dumps({"definition": tokenizer.definition, "special": special})


def _tokenizer_from_json(text: str) -> SavedTokenizer:
    saved: Mapping[str, Any] = json.loads(text)
    special: dict[str, Any] = dict(saved["special"])
    for name in ("eos_token_ids", "control_ids"):
        special[name] = frozenset(special[name])
    return SavedTokenizer(saved["definition"], SpecialTokens(**special))

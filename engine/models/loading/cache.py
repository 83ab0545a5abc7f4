"""The converted copy of a GGUF file: weights in the engine's dtype and layout, to be mapped into memory.

Dequantising takes seconds, mapping takes none, and mapped pages are shared between processes. One safetensors file
holds the tensors, and in its header the configuration, the tokenizer and a checksum of each tensor. Its name tells
source, dtype and format. A file that fails a check counts as absent and is written anew; when it cannot be written
(full disk, read-only directory) the engine goes on without it. Does not: ever raise for a bad cache.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from engine.models.catalog import cache_dir
from engine.models.config import ModelConfig, config_from_dict
from engine.models.loading.fingerprint import weight_hash
from engine.models.loading.tokenizer import SavedTokenizer
from engine.models.tokenizer import SpecialTokens

FORMAT_VERSION: Final = 1
_ALIGNMENT = 4096  # the first tensor starts on a page, and the sizes of matrices keep the others on cache lines
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
    return cache_dir() / "converted" / f"{_family(source, dtype)}{key}.safetensors"


def _family(source: Path, dtype: torch.dtype) -> str:
    """Begin the file name that all versions of one source and dtype share, so that old ones can be removed."""
    place = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:8]
    return f"{source.stem[:60]}-{place}-{_NAMES[dtype]}-"


def load_converted(path: Path) -> Converted | None:
    """Map a cache file. Gives None when it is absent, damaged, or of another format."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, str] = file.metadata() or {}
            checksums: dict[str, int] = json.loads(header["checksums"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if {name: _checksum(tensor) for name, tensor in weights.items()} != checksums:
            return None
        config = config_from_dict(json.loads(header["config"]))
        return Converted(config, weights, _tokenizer_from_json(header["tokenizer"]))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None


def store_converted(path: Path, converted: Converted, *, source: Path, dtype: torch.dtype) -> bool:
    """Write a cache file, whole or not at all. Gives False when that was impossible."""
    needed = sum(tensor.nbytes + _ALIGNMENT for tensor in converted.weights.values())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(path.parent).free < 2 * needed:
            return False
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                _write(file, converted)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _remove_older(path, _family(source, dtype))
    except OSError:
        return False
    return True


def _remove_older(current: Path, family: str) -> None:
    for other in current.parent.glob(f"{family}*.safetensors"):
        if other != current:
            with contextlib.suppress(OSError):  # another process may be removing it too
                other.unlink()


def _write(file: Any, converted: Converted) -> None:
    """Write the safetensors format by hand, since the library does not align tensors to pages."""
    entries: dict[str, Any] = {
        "__metadata__": {
            "checksums": json.dumps({name: _checksum(tensor) for name, tensor in converted.weights.items()}),
            "config": json.dumps(converted.config.to_dict()),
            "tokenizer": _tokenizer_to_json(converted.tokenizer),
        }
    }
    offset = 0
    for name, tensor in converted.weights.items():
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    header = json.dumps(entries).encode()
    header += b" " * (-(len(header) + 8) % _ALIGNMENT)
    file.write(len(header).to_bytes(8, "little") + header)
    for tensor in converted.weights.values():
        file.write(_bytes_of(tensor))


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.contiguous().view(torch.uint8).numpy()).cast("B")


def _checksum(tensor: torch.Tensor) -> int:
    return zlib.crc32(_bytes_of(tensor))


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

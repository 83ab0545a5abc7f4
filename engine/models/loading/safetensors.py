"""Weights of a Hugging Face folder: ``model.safetensors``, or shards with an index.

Tensors are mapped into memory and converted one by one. Does not: read configurations or tokenizers
(``loading/huggingface.py``). Source: the safetensors format and Hugging Face's names for Llama-like weights.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from engine.device import DeviceSpec, free_memory
from engine.errors import ModelError
from engine.fields import bytes_in_words, cut
from engine.models.config import ModelConfig
from engine.models.loading.entries import Entries, naming
from engine.models.loading.finite import require_finite
from engine.models.loading.layout import Shape, read_weights, weight_parts, weight_shapes

_INDEX: Final = "model.safetensors.index.json"
_SINGLE: Final = "model.safetensors"
_MOST_JSON_BYTES: Final = 1 << 24  # an index of a thousand layers stays far below
MOST_TOKENIZER_BYTES: Final = 1 << 28
_FLOATS: Final = ("F32", "BF16", "F16")

_WHOLE_NAMES = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "lm_head.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attention_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def read_json(path: Path, *, most_bytes: int = _MOST_JSON_BYTES) -> dict[str, Any]:
    """Read a JSON object. Raises: ModelError for a file that is missing, huge, no JSON, or no object."""
    try:
        size = path.stat().st_size
        values = None if size > most_bytes else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else cut(error)
        message = f"{path} cannot be read as JSON: {reason}"
        raise ModelError(message) from error
    if size > most_bytes:
        message = f"{path} must have at most {bytes_in_words(most_bytes)}, got {bytes_in_words(size)}"
        raise ModelError(message)
    if not isinstance(values, dict):
        message = f"{path} must hold a JSON object, got {type(values).__name__}"
        raise ModelError(message)
    return values


def weight_files(folder: Path) -> list[Path]:
    """List the folder's weight files in order. Raises: ModelError when there are none or a shard is missing."""
    if (folder / _INDEX).is_file():
        index = Entries(read_json(folder / _INDEX))
        with naming(folder / _INDEX):
            shards = index.inner("weight_map").texts()
            if not shards:
                index.refuse("weight_map", "an object that gives the file of each tensor")
            files = [folder / name for name in sorted(set(shards.values()))]
    else:
        files = [folder / _SINGLE]
    for file in files:
        if not file.is_file():
            message = f"{folder} lacks the weights {file.name}; the engine reads {_SINGLE}, or shards with {_INDEX}"
            raise ModelError(message)
    return files


def read_safetensors(folder: Path, config: ModelConfig, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Read all weights under the engine's names.

    Raises: ModelError for a damaged file, and for a tensor that is missing, misshapen or no float; it is named.
    """
    from safetensors import SafetensorError, safe_open

    handles: dict[str, Any] = {}  # tensor name -> the open file that holds it
    for path in weight_files(folder):
        try:
            handle = safe_open(path, framework="pt")
            handles |= dict.fromkeys(handle.keys(), handle)
        except (SafetensorError, OSError, ValueError) as error:
            message = f"{path} is not a readable safetensors file ({cut(error)}); download it again"
            raise ModelError(message) from error

    for parts in weight_parts(config).values():  # before memory is taken for any of them
        for part, shape in parts:
            _require_stored(folder, handles, _file_name(part), shape)
    needed = sum(math.prod(shape) for shape in weight_shapes(config).values()) * dtype.itemsize
    free = free_memory(DeviceSpec(torch.device("cpu"), dtype, is_cuda=False))
    if needed > free:
        message = (
            f"{folder}: the weights take {bytes_in_words(needed)} of memory as {str(dtype).removeprefix('torch.')}, "
            f"and {bytes_in_words(free)} are free; use a smaller model or a smaller dtype"
        )
        raise ModelError(message)

    def read_part(part: str, goal: torch.Tensor) -> None:
        name = _file_name(part)
        try:
            goal.copy_(handles[name].get_tensor(name))
        except (SafetensorError, RuntimeError) as error:
            message = f"{folder}: tensor {name!r} cannot be read ({cut(error)}); download it again"
            raise ModelError(message) from error
        require_finite(f"{folder}: tensor {name!r}", goal)

    return dict(read_weights(config, dtype, read_part))


def _require_stored(folder: Path, handles: Mapping[str, Any], name: str, shape: Shape) -> None:
    """Check presence, shape and type of a tensor by the files' headers."""
    if name not in handles:
        message = f"{folder} lacks the tensor {name!r} of shape {shape}"
        raise ModelError(message)
    stored = handles[name].get_slice(name)
    got = tuple(stored.get_shape())
    if got != shape:
        message = f"{folder}: tensor {name!r} must have shape {shape} according to config.json, got {got}"
        raise ModelError(message)
    if stored.get_dtype() not in _FLOATS:
        message = f"{folder}: tensor {name!r} has type {stored.get_dtype()}; supported are {', '.join(_FLOATS)}"
        raise ModelError(message)


def _file_name(part: str) -> str:
    """Give Hugging Face's name of a part: layers.3.q.weight -> model.layers.3.self_attn.q_proj.weight."""
    if part in _WHOLE_NAMES:
        return _WHOLE_NAMES[part]
    _, layer, kind, suffix = part.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[kind]}.{suffix}"

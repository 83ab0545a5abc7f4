"""Weights of a Hugging Face folder: ``model.safetensors``, or shards with an index.

Tensors are mapped into memory and converted one by one. Does not: read configurations or tokenizers
(``loading/huggingface.py``). Source: the safetensors format and Hugging Face's names for Llama-like weights.
"""

import json
from pathlib import Path
from typing import Any, Final

import torch

from engine.errors import ModelError
from engine.models.config import ModelConfig
from engine.models.loading.layout import read_weights

_INDEX: Final = "model.safetensors.index.json"
_SINGLE: Final = "model.safetensors"
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)

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


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises: ModelError for a file that is missing, no JSON, or no object."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read as JSON: {error}"
        raise ModelError(message) from error
    if not isinstance(values, dict):
        message = f"{path} must hold a JSON object, got {type(values).__name__}"
        raise ModelError(message)
    return values


def weight_files(folder: Path) -> list[Path]:
    """List the folder's weight files in order. Raises: ModelError when there are none or a shard is missing."""
    if (folder / _INDEX).is_file():
        weight_map = read_json(folder / _INDEX).get("weight_map")
        if not isinstance(weight_map, dict):
            message = f"{folder / _INDEX} lacks the object 'weight_map'"
            raise ModelError(message)
        files = [folder / name for name in sorted(set(weight_map.values()))]
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
            message = f"{path} is not a readable safetensors file ({error}); download it again"
            raise ModelError(message) from error

    def read_part(part: str, goal: torch.Tensor) -> None:
        shape = tuple(goal.shape)
        name = _file_name(part)
        if name not in handles:
            message = f"{folder} lacks the tensor {name!r} of shape {shape}"
            raise ModelError(message)
        got = tuple(handles[name].get_slice(name).get_shape())
        if got != shape:
            message = f"{folder}: tensor {name!r} must have shape {shape} according to config.json, got {got}"
            raise ModelError(message)
        tensor = handles[name].get_tensor(name)
        if tensor.dtype not in _FLOATS:
            message = f"{folder}: tensor {name!r} has type {tensor.dtype}; supported are float32, bfloat16 and float16"
            raise ModelError(message)
        goal.copy_(tensor)

    return dict(read_weights(config, dtype, read_part))


def _file_name(part: str) -> str:
    """Give Hugging Face's name of a part: layers.3.q.weight -> model.layers.3.self_attn.q_proj.weight."""
    if part in _WHOLE_NAMES:
        return _WHOLE_NAMES[part]
    _, layer, kind, suffix = part.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[kind]}.{suffix}"

"""Hugging Face folders of Llama, Qwen2 and Qwen3: configuration and tokenizer.

Anything that the engine would compute differently (sliding windows, other activations, quantised weights, other
rope rules) is refused by name instead of being ignored. Does not: read weights (``loading/safetensors.py``).
Source: config.json, generation_config.json, tokenizer.json and tokenizer_config.json as ``transformers`` writes them.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from engine.errors import ModelError
from engine.models.config import ModelConfig, ModelFeatures, RopeConfig, RopeScalingKind
from engine.models.loading.cache import Converted
from engine.models.loading.safetensors import read_json, read_safetensors, weight_files
from engine.models.loading.tokenizer import SavedTokenizer
from engine.models.tokenizer import SpecialTokens

_ARCHITECTURES: Final = ("llama", "qwen2", "qwen3")
_ROPE_KINDS: Final[dict[str, RopeScalingKind]] = {
    "default": RopeScalingKind.NONE,
    "linear": RopeScalingKind.LINEAR,
    "llama3": RopeScalingKind.LLAMA3,
}
_REQUIRED: Final = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


def read_folder(folder: Path, dtype: torch.dtype) -> Converted:
    """Read a whole folder. Raises: ModelError, which names the file and what is wrong in it."""
    if not any(folder.iterdir()):
        message = f"{folder} is empty; a model folder holds config.json, safetensors weights and tokenizer.json"
        raise ModelError(message)
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            found = sorted(path.name for path in folder.glob("*.gguf"))
            hint = f"; it holds {found[0]}: pass the path of that file" if found else ""
            message = f"{folder} lacks {name}{hint}"
            raise ModelError(message)
    weight_files(folder)
    values = read_json(folder / "config.json")
    try:
        config = parse_config(values)
    except (ModelError, TypeError, ValueError, ArithmeticError) as error:
        message = f"{folder / 'config.json'}: {error}"
        raise ModelError(message) from error
    tokenizer = read_tokenizer(folder, values)
    return Converted(config, read_safetensors(folder, config, dtype), tokenizer)


def parse_config(values: Mapping[str, Any]) -> ModelConfig:
    """Translate a config.json. Raises: ModelError for what the engine does not run."""
    architecture = values.get("model_type")
    if architecture not in _ARCHITECTURES:
        message = f"model_type {architecture!r} is not supported; supported are {', '.join(_ARCHITECTURES)}"
        raise ModelError(message)
    missing = [name for name in _REQUIRED if not isinstance(values.get(name), int)]
    if missing:
        message = f"must have the integer {', '.join(map(repr, missing))}"
        raise ModelError(message)
    _refuse_unsupported(values)
    num_heads = values["num_attention_heads"]
    has_bias = bool(values.get("attention_bias", False))
    return ModelConfig(
        architecture=architecture,
        vocab_size=values["vocab_size"],
        hidden_size=values["hidden_size"],
        intermediate_size=values["intermediate_size"],
        num_layers=values["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=values.get("num_key_value_heads") or num_heads,
        head_size=values.get("head_dim") or values["hidden_size"] // num_heads,
        rms_norm_eps=float(values.get("rms_norm_eps", 1e-6)),
        max_position=int(values.get("max_position_embeddings", 2048)),
        rope=_parse_rope(values),
        features=ModelFeatures(
            tie_word_embeddings=bool(values.get("tie_word_embeddings", False)),
            qkv_bias=architecture == "qwen2" or has_bias,
            output_bias=architecture != "qwen2" and has_bias,
            mlp_bias=architecture == "llama" and bool(values.get("mlp_bias", False)),
            qk_norm=architecture == "qwen3",
        ),
    )


def _refuse_unsupported(values: Mapping[str, Any]) -> None:
    layer_types = set(values.get("layer_types") or ["full_attention"])
    # A window in an architecture without the switch applies as soon as it is set.
    has_window = values.get("sliding_window") is not None and values.get("use_sliding_window", True)
    refusals = {
        "sliding-window attention": has_window or layer_types != {"full_attention"},
        f"hidden_act {values.get('hidden_act')!r}": values.get("hidden_act", "silu") != "silu",
        "quantization_config": values.get("quantization_config") is not None,
        "partial_rotary_factor": values.get("partial_rotary_factor", 1.0) != 1.0,
    }
    for name, is_refused in refusals.items():
        if is_refused:
            message = f"{name} is not supported"
            raise ModelError(message)


def _parse_rope(values: Mapping[str, Any]) -> RopeConfig:
    """Read rope_parameters (transformers 5) or rope_theta and rope_scaling (before)."""
    rope: Mapping[str, Any] = values.get("rope_parameters") or values.get("rope_scaling") or {}
    name = rope.get("rope_type", rope.get("type", "default"))
    if name not in _ROPE_KINDS:
        message = f"rope scaling {name!r} is not supported; supported are {', '.join(_ROPE_KINDS)}"
        raise ModelError(message)
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        message = "partial_rotary_factor is not supported"
        raise ModelError(message)
    return RopeConfig(
        theta=float(rope.get("rope_theta", values.get("rope_theta", 10000.0))),
        kind=_ROPE_KINDS[name],
        factor=float(rope.get("factor", 1.0)),
        low_freq_factor=float(rope.get("low_freq_factor", 1.0)),
        high_freq_factor=float(rope.get("high_freq_factor", 4.0)),
        original_max_position=int(
            rope.get("original_max_position_embeddings", values.get("max_position_embeddings", 8192))
        ),
    )


def read_tokenizer(folder: Path, model_values: Mapping[str, Any]) -> SavedTokenizer:
    """Read tokenizer.json and what the other files say about special tokens.

    Raises: ModelError when one of the files is no JSON or not laid out as such a file is.
    """
    parsed = read_json(folder / "tokenizer.json")
    settings = _read_optional(folder / "tokenizer_config.json")
    generation = _read_optional(folder / "generation_config.json")
    try:
        special = _special_tokens(parsed, settings, generation.get("eos_token_id", model_values.get("eos_token_id")))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        message = f"{folder / 'tokenizer.json'} is not laid out as a tokenizer ({type(error).__name__}: {error})"
        raise ModelError(message) from error
    special = dataclasses.replace(special, chat_template=_chat_template(folder, settings))
    return SavedTokenizer((folder / "tokenizer.json").read_text(encoding="utf-8"), special)


def _special_tokens(parsed: Mapping[str, Any], settings: Mapping[str, Any], eos: Any) -> SpecialTokens:
    """Gather them. eos: an id, several, or None where only the tokenizer's settings name it."""
    added = {entry["content"]: entry for entry in parsed.get("added_tokens") or []}

    def id_of(token: Any) -> int | None:
        text = token.get("content") if isinstance(token, dict) else token
        return added[text]["id"] if text in added else None

    if eos is None:
        eos = id_of(settings.get("eos_token"))
    first, bos = _first_special_id(parsed), id_of(settings.get("bos_token"))
    add_bos = settings.get("add_bos_token")
    if not isinstance(add_bos, bool):  # then the post-processor decides
        add_bos = first is not None and bos in (None, first)
    return SpecialTokens(
        eos_token_ids=frozenset(eos if isinstance(eos, list) else [] if eos is None else [eos]),
        bos_token_id=first if bos is None else bos,
        add_bos=add_bos,
        control_ids=frozenset(entry["id"] for entry in added.values() if entry.get("special")),
    )


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _first_special_id(parsed: Mapping[str, Any]) -> int | None:
    """Give the id that tokenizer.json's post-processor puts in front of a text, if it does."""
    processor = parsed.get("post_processor") or {}
    for step in processor.get("processors", [processor]):
        if step.get("type") != "TemplateProcessing":
            continue
        first = step["single"][0].get("SpecialToken")
        if first is not None:
            return step["special_tokens"][first["id"]]["ids"][0]
    return None


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    own_file = folder / "chat_template.jinja"
    if own_file.is_file():
        return own_file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):  # several, by name
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template if isinstance(template, str) else None

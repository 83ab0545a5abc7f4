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

from engine import fields
from engine.errors import ModelError
from engine.fields import shown
from engine.models.chat import require_template
from engine.models.config import MOST, ModelConfig, ModelFeatures, RopeConfig, RopeScalingKind
from engine.models.loading.cache import Converted
from engine.models.loading.entries import Entries, naming
from engine.models.loading.safetensors import MOST_TOKENIZER_BYTES, read_json, read_safetensors, weight_files
from engine.models.loading.tokenizer import SavedTokenizer
from engine.models.tokenizer import SpecialTokens

_ARCHITECTURES: Final = ("llama", "qwen2", "qwen3")
_ROPE_KINDS: Final[dict[str, RopeScalingKind]] = {
    "default": RopeScalingKind.NONE,
    "linear": RopeScalingKind.LINEAR,
    "llama3": RopeScalingKind.LLAMA3,
}


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
    with naming(folder / "config.json"):
        config = parse_config(values)
    tokenizer = read_tokenizer(folder, values)
    return Converted(config, read_safetensors(folder, config, dtype), tokenizer)


def parse_config(values: Mapping[str, Any]) -> ModelConfig:
    """Translate a config.json. Raises: ModelError for what the engine does not run; it names the key."""
    given = Entries(values)
    architecture = given.raw("model_type")
    if architecture not in _ARCHITECTURES:
        given.refuse("model_type", f"one of {', '.join(_ARCHITECTURES)}")
    _refuse_unsupported(given)
    hidden_size = given.integer("hidden_size", at_most=MOST["hidden_size"])
    num_heads = given.integer("num_attention_heads", at_most=MOST["num_heads"])
    if "head_dim" not in given and hidden_size % num_heads:
        given.refuse("hidden_size", f"a multiple of num_attention_heads={num_heads} where head_dim is not given")
    has_bias = given.flag("attention_bias", default=False)
    return ModelConfig(
        architecture=architecture,
        vocab_size=given.integer("vocab_size", at_most=MOST["vocab_size"]),
        hidden_size=hidden_size,
        intermediate_size=given.integer("intermediate_size", at_most=MOST["intermediate_size"]),
        num_layers=given.integer("num_hidden_layers", at_most=MOST["num_layers"]),
        num_heads=num_heads,
        num_kv_heads=given.integer("num_key_value_heads", num_heads, at_most=MOST["num_kv_heads"]),
        head_size=given.integer("head_dim", hidden_size // num_heads, at_most=MOST["head_size"]),
        rms_norm_eps=given.number("rms_norm_eps", 1e-6, high=1.0, low_open=False),
        max_position=given.integer("max_position_embeddings", 2048, at_most=MOST["max_position"]),
        rope=_parse_rope(given),
        features=ModelFeatures(
            tie_word_embeddings=given.flag("tie_word_embeddings", default=False),
            qkv_bias=architecture == "qwen2" or has_bias,
            output_bias=architecture != "qwen2" and has_bias,
            mlp_bias=architecture == "llama" and given.flag("mlp_bias", default=False),
            qk_norm=architecture == "qwen3",
        ),
    )


def _refuse_unsupported(given: Entries) -> None:
    layer_types = set(given.listed("layer_types", "text")) or {"full_attention"}
    # A window in an architecture without the switch applies as soon as it is set.
    has_window = "sliding_window" in given and given.flag("use_sliding_window", default=True)
    activation = given.text("hidden_act", "silu")
    refusals = {
        "sliding-window attention": has_window or layer_types != {"full_attention"},
        f"hidden_act {shown(activation)}": activation != "silu",
        "quantization_config": "quantization_config" in given,
        "partial_rotary_factor": given.number("partial_rotary_factor", 1.0) != 1.0,
    }
    for name, is_refused in refusals.items():
        if is_refused:
            message = f"{name} is not supported"
            raise ModelError(message)


def _parse_rope(given: Entries) -> RopeConfig:
    """Read rope_parameters (transformers 5) or rope_theta and rope_scaling (before)."""
    rope = given.inner("rope_parameters" if "rope_parameters" in given else "rope_scaling")
    key = "rope_type" if "rope_type" in rope else "type"
    name = rope.text(key, "default")
    if name not in _ROPE_KINDS:
        message = f"rope scaling {shown(name)} is not supported; supported are {', '.join(_ROPE_KINDS)}"
        raise ModelError(message)
    if rope.number("partial_rotary_factor", 1.0) != 1.0:
        message = "partial_rotary_factor is not supported"
        raise ModelError(message)
    return RopeConfig(
        theta=(rope if "rope_theta" in rope else given).number("rope_theta", 10000.0),
        kind=_ROPE_KINDS[name],
        factor=rope.number("factor", 1.0),
        low_freq_factor=rope.number("low_freq_factor", 1.0),
        high_freq_factor=rope.number("high_freq_factor", 4.0),
        original_max_position=rope.integer(
            "original_max_position_embeddings", given.integer("max_position_embeddings", 8192)
        ),
    )


def read_tokenizer(folder: Path, model_values: Mapping[str, Any]) -> SavedTokenizer:
    """Read tokenizer.json and what the other files say about special tokens.

    Raises: ModelError when one of the files is no JSON or not laid out as such a file is.
    """
    path = folder / "tokenizer.json"
    parsed = read_json(path, most_bytes=MOST_TOKENIZER_BYTES)
    with naming(path):
        tokens, first = _token_facts(Entries(parsed))
    settings = _read_optional(folder / "tokenizer_config.json")
    with naming(folder / "tokenizer_config.json"):
        special = _special_tokens(tokens, first, Entries(settings))
        template = _template_of(Entries(settings))
    eos = _end_ids(folder, model_values)
    special = dataclasses.replace(
        special,
        eos_token_ids=special.eos_token_ids if eos is None else eos,
        chat_template=_chat_template(folder, template),
    )
    return SavedTokenizer(path.read_text(encoding="utf-8"), special)


@dataclasses.dataclass(frozen=True, slots=True)
class _AddedToken:
    """One of tokenizer.json's added tokens."""

    text: str
    token_id: int
    is_control: bool


def _token_facts(parsed: Entries) -> tuple[dict[str, _AddedToken], int | None]:
    """Read the added tokens by their text, and the id that the post-processor puts in front, if it does."""

    def added(entry: Entries) -> _AddedToken:
        token_id = entry.integer("id", low=0, at_most=MOST["vocab_size"])
        return _AddedToken(entry.text("content"), token_id, entry.flag("special", default=False))

    found: list[_AddedToken] = parsed.each("added_tokens", added)
    processor = parsed.inner("post_processor")
    steps = processor.each("processors", lambda step: step) if "processors" in processor else [processor]
    firsts = [_first_of(step) for step in steps if step.raw("type") == "TemplateProcessing"]
    return {token.text: token for token in found}, next((first for first in firsts if first is not None), None)


def _first_of(step: Entries) -> int | None:
    """Give the id of the token that a template begins with, None when it begins with the text."""
    pieces = step.each("single", lambda piece: piece)
    if not pieces or "SpecialToken" not in pieces[0]:
        return None
    name = pieces[0].inner("SpecialToken").text("id")
    ids = step.inner("special_tokens").inner(name).listed("ids", "integer")
    if not ids:
        step.inner("special_tokens").inner(name).refuse("ids", "a list of at least one token id")
    return ids[0]


def _special_tokens(tokens: Mapping[str, _AddedToken], first: int | None, settings: Entries) -> SpecialTokens:
    def id_of(key: str) -> int | None:
        value = settings.raw(key)
        text = value if isinstance(value, str) else settings.inner(key).raw("content")
        token = tokens.get(text) if isinstance(text, str) else None
        return None if token is None else token.token_id

    eos, bos = id_of("eos_token"), id_of("bos_token")
    # Where the settings leave it open, the post-processor decides.
    adds_first = first is not None and bos in (None, first)
    return SpecialTokens(
        eos_token_ids=frozenset(() if eos is None else (eos,)),
        bos_token_id=first if bos is None else bos,
        add_bos=settings.flag("add_bos_token", default=adds_first),
        control_ids=frozenset(token.token_id for token in tokens.values() if token.is_control),
    )


def _end_ids(folder: Path, model_values: Mapping[str, Any]) -> frozenset[int] | None:
    """Read the ids that end a text, from generation_config.json or else config.json; None where neither names one."""
    generation = _read_optional(folder / "generation_config.json")
    is_generation = generation.get("eos_token_id") is not None
    value = generation["eos_token_id"] if is_generation else model_values.get("eos_token_id")
    if value is None:
        return None
    most = model_values.get("vocab_size")
    high = most - 1 if isinstance(most, int) else None
    with naming(folder / ("generation_config.json" if is_generation else "config.json")):
        listed = value if isinstance(value, list) else [value]
        return frozenset(fields.integer("eos_token_id", i, refusal=ModelError, low=0, high=high) for i in listed)


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _template_of(settings: Entries) -> str | None:
    """Read the chat template of the settings; of several, the one named default."""
    value = settings.raw("chat_template")
    if isinstance(value, list):
        named = settings.each("chat_template", lambda entry: (entry.text("name"), entry.text("template")))
        value = dict(named).get("default")
    if not isinstance(value, str | None):
        settings.refuse("chat_template", "text, or a list of objects with name and template")
    if value is not None:
        require_template("chat_template", value)
    return value


def _chat_template(folder: Path, of_settings: str | None) -> str | None:
    own_file = folder / "chat_template.jinja"
    if not own_file.is_file():
        return of_settings
    with naming(own_file):
        try:
            template = own_file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            message = f"the template must be UTF-8 text ({error})"
            raise ModelError(message) from error
        require_template("the template", template)
        return template

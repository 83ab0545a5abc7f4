"""The same weights in transformers: the yardstick of ``cpu.py`` and ``gpu.py``.

A GGUF file is read by the engine's own reader, so that both sides hold the same numbers; a Hugging Face folder is read
by transformers itself.

Does not: time anything. Only Llama-architecture models without extras are rebuilt from engine weights.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from engine.errors import ConfigError, ModelError
from engine.models.catalog import PUBLISHED, TINY_NAME
from engine.models.config import ModelConfig, RopeConfig, RopeScalingKind
from engine.models.loading.layout import weight_parts

_WHOLE = {"embedding": "model.embed_tokens", "norm": "model.norm", "lm_head": "lm_head"}
_LAYER = {
    "attention_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def require_transformers() -> Any:
    """Return the package. Raises: ConfigError naming the extra that brings it."""
    try:
        import transformers
    except ImportError as error:
        message = (
            "comparing needs the package transformers, which only the dev extra brings; run `make setup`, or "
            "`pip install 'stepscope[dev]'`"
        )
        raise ConfigError(message) from error
    return transformers


def load_reference(name_or_path: str, seed: int = 0) -> Any:
    """Return a transformers causal LM in float32 with the weights that the engine loads for the same name."""
    transformers = require_transformers()
    transformers.logging.set_verbosity_error()
    path = PUBLISHED[name_or_path].path if name_or_path in PUBLISHED else Path(name_or_path).expanduser()
    if path.is_dir():
        return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    config, weights = _engine_weights(name_or_path, path, seed)
    if config.features.qk_norm or config.features.qkv_bias or config.rope.kind is not RopeScalingKind.NONE:
        message = f"only plain Llama weights can be compared from a GGUF file, {name_or_path!r} has extras"
        raise ModelError(message)
    return rebuild(config, {name: weight.float() for name, weight in weights.items()})


def rebuild(config: ModelConfig, weights: Mapping[str, torch.Tensor]) -> Any:
    """Return a transformers Llama over the engine's weights: views of them, where they lie and in their dtype."""
    transformers = require_transformers()
    first = next(iter(weights.values()))
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(_llama_config(transformers, config, first.dtype))
    model.load_state_dict(dict(renamed(config, weights)), strict=False, assign=True)
    model.tie_weights()
    # The rotary table is a buffer that no file holds: it is computed again, now on a real device.
    model.model.rotary_emb = type(model.model.rotary_emb)(config=model.config).to(first.device)
    return model.requires_grad_(requires_grad=False).eval()


def renamed(config: ModelConfig, weights: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Cut the engine's joined matrices into parts and give each its transformers name."""
    for name, parts in weight_parts(config).items():
        pieces = weights[name].split([shape[0] for _, shape in parts])
        for (part, _), piece in zip(parts, pieces, strict=True):
            *prefix, stem, kind = part.split(".")
            if prefix:
                yield f"model.layers.{prefix[-1]}.{_LAYER[stem]}.{kind}", piece
            else:
                yield f"{_WHOLE[stem]}.{kind}", piece


def _engine_weights(name: str, path: Path, seed: int) -> tuple[ModelConfig, Mapping[str, torch.Tensor]]:
    if name == TINY_NAME:
        from engine.models.tiny import TINY_CONFIG, tiny_weights

        return TINY_CONFIG, tiny_weights(seed)
    from engine.models.loading.gguf import GGUFFile

    file = GGUFFile(path)
    return file.config, dict(file.weights(torch.float32))


def _llama_config(transformers: Any, config: ModelConfig, dtype: torch.dtype) -> Any:
    return transformers.LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_size,
        rms_norm_eps=config.rms_norm_eps,
        max_position_embeddings=config.max_position,
        rope_parameters=_rope_parameters(config.rope),
        tie_word_embeddings=config.tie_word_embeddings,
        bos_token_id=None,
        eos_token_id=None,
        dtype=dtype,
    )


def _rope_parameters(rope: RopeConfig) -> dict[str, Any]:
    if rope.kind is RopeScalingKind.NONE:
        return {"rope_type": "default", "rope_theta": rope.theta}
    assert rope.kind is RopeScalingKind.LLAMA3
    return {
        "rope_type": "llama3",
        "rope_theta": rope.theta,
        "factor": rope.factor,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
        "original_max_position_embeddings": rope.original_max_position,
    }

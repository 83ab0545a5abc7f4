"""``tiny``: a seeded random model for tests and teaching. Under 1 MB, byte tokenizer, nothing to download.

Its text is gibberish with readable letters. Weights are large enough that the best token stands out clearly from
the second (so that two correct computations rarely disagree) and that the text does not fall into one repeated
token. Does not: imitate a trained model.
"""

import torch

from engine.models.config import ModelConfig, ModelFeatures
from engine.models.tokenizer import ByteTokenizer, SpecialTokens, Tokenizer

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_END_OF_TEXT = 256
_IM_END = 258
_READABLE = "abcdefghijklmnopqrstuvwxyz ,.\n"
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

TINY_CONFIG = ModelConfig(
    architecture="llama",
    vocab_size=256 + len(CONTROL_TOKENS),
    hidden_size=64,
    intermediate_size=128,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_size=16,
    rms_norm_eps=1e-5,
    max_position=8192,
    features=ModelFeatures(tie_word_embeddings=False),
)


def tiny_weights(seed: int) -> dict[str, torch.Tensor]:
    """Draw the weights; the same seed gives the same model on every machine. Shapes: as ``loading/layout.py``."""
    generator = torch.Generator().manual_seed(seed)
    config = TINY_CONFIG

    def matrix(rows: int, columns: int, gain: float) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * (gain / columns**0.5)

    hidden, width = config.hidden_size, config.intermediate_size
    weights = {"embedding.weight": matrix(config.vocab_size, hidden, hidden**0.5)}
    for i in range(config.num_layers):
        weights |= {
            f"layers.{i}.attention_norm.weight": torch.ones(hidden),
            f"layers.{i}.qkv.weight": matrix(config.query_size + 2 * config.kv_size, hidden, 1.7),
            f"layers.{i}.o.weight": matrix(hidden, config.query_size, 1.7),
            f"layers.{i}.mlp_norm.weight": torch.ones(hidden),
            f"layers.{i}.gate_up.weight": matrix(2 * width, hidden, 1.5),
            f"layers.{i}.down.weight": matrix(hidden, width, 1.5),
        }
    # A token's own direction counts against it, so that the text does not stand still.
    head = matrix(config.vocab_size, hidden, 8.0) - 0.4 * weights["embedding.weight"]
    # Readable bytes win nearly always; the rest stays possible under a temperature.
    quiet = torch.full((config.vocab_size, 1), 0.2)
    quiet[[ord(c) for c in _READABLE]] = 1.0
    return weights | {"norm.weight": torch.ones(hidden), "lm_head.weight": head * quiet}


def tiny_tokenizer() -> Tokenizer:
    """Bytes, plus the control tokens of a ChatML conversation."""
    special = SpecialTokens(
        eos_token_ids=frozenset({_END_OF_TEXT, _IM_END}),
        bos_token_id=None,
        control_ids=frozenset(range(256, 256 + len(CONTROL_TOKENS))),
        chat_template=_CHAT_TEMPLATE,
    )
    return ByteTokenizer(CONTROL_TOKENS, special)

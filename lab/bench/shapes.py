"""Models of a published shape with random weights: the speed of a step depends on the shapes alone.

The weights are drawn on the device where they will be read, so that 8 billion of them take no minute and no download.
Their scale keeps activations near one through every layer: no product overflows, no row turns into one token.

Does not: imitate a trained model; its text is numbers. Source: the shapes are SmolLM2-135M's and Llama-3.1-8B's.
"""

import hashlib

import torch

from engine.device import DeviceSpec
from engine.errors import ConfigError, RequestError
from engine.models.config import ModelConfig, ModelFeatures, RopeConfig, RopeScalingKind
from engine.models.llama import CausalLM
from engine.models.loading.layout import weight_shapes
from engine.models.registry import LoadedModel
from engine.models.tiny import TINY_CONFIG
from engine.models.tokenizer import SpecialTokens, Tokenizer

SHAPES: dict[str, ModelConfig] = {
    "tiny": TINY_CONFIG,
    "smollm2-135m": ModelConfig(
        architecture="llama",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_size=64,
        rms_norm_eps=1e-5,
        max_position=8192,
        rope=RopeConfig(theta=100000.0),
        features=ModelFeatures(tie_word_embeddings=True),
    ),
    "llama-3.1-8b": ModelConfig(
        architecture="llama",
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_layers=32,
        num_heads=32,
        num_kv_heads=8,
        head_size=128,
        rms_norm_eps=1e-5,
        max_position=131072,
        rope=RopeConfig(theta=500000.0, kind=RopeScalingKind.LLAMA3, factor=8.0),
    ),
}


class NumberTokenizer(Tokenizer):
    """Token i is the number i and a space: any vocabulary can be spelled, and a text read back."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__([b"%d " % i for i in range(vocab_size)], SpecialTokens())

    def encode_plain(self, text: str) -> list[int]:
        """Read the numbers of the text. Raises: RequestError for a word that is no id."""
        words = text.split()
        if not all(
            word.isascii() and word.isdecimal() and len(word) < 10 and int(word) < self.vocab_size for word in words
        ):
            message = f"the text must be numbers from 0 to {self.vocab_size - 1} with spaces between, got {text!r}"
            raise RequestError(message)
        return [int(word) for word in words]


def shape_config(name: str) -> ModelConfig:
    """Look a shape up. Raises: ConfigError with the names there are."""
    if name not in SHAPES:
        message = f"a shape is one of {', '.join(SHAPES)}, got {name!r}"
        raise ConfigError(message)
    return SHAPES[name]


def random_weights(config: ModelConfig, spec: DeviceSpec, seed: int = 0) -> dict[str, torch.Tensor]:
    """Draw every weight on the device. Shapes: as ``loading/layout.py``."""
    device = spec.torch_device
    generator = torch.Generator(device).manual_seed(seed)
    weights: dict[str, torch.Tensor] = {}
    for name, shape in weight_shapes(config).items():
        weight = torch.empty(shape, dtype=spec.dtype, device=device)
        if len(shape) == 1:
            weight.fill_(1.0 if name.endswith(".weight") else 0.0)
        else:
            weight.normal_(0.0, shape[-1] ** -0.5, generator=generator)
        weights[name] = weight
    return weights


def random_model(
    name: str, weights: dict[str, torch.Tensor], spec: DeviceSpec, *, max_seq_len: int, seed: int = 0
) -> LoadedModel:
    """Put weights of a shape into a model that ``LLM`` takes; it reads them where they lie."""
    config = shape_config(name)
    model = CausalLM(config, weights, spec, num_positions=max_seq_len)
    digest = hashlib.sha256(repr((config, seed)).encode()).hexdigest()[:16]
    return LoadedModel(f"random {name}", config, model, NumberTokenizer(config.vocab_size), digest)


def step_bytes(config: ModelConfig, dtype: torch.dtype, *, batch: int, cached_tokens: int) -> int:
    """Count the bytes that one decode step cannot avoid reading.

    Every matrix once (a tied embedding once, as the LM head), the embedding rows of the batch's tokens, and keys and
    values of the cached tokens of every sequence. Activations, tables and what is written are left out.
    """
    total = sum(torch.Size(shape).numel() for shape in weight_shapes(config).values())
    if not config.tie_word_embeddings:
        total -= config.vocab_size * config.hidden_size
    rows = batch * config.hidden_size
    cache = 2 * config.num_layers * config.kv_size * cached_tokens * batch
    return (total + rows + cache) * dtype.itemsize

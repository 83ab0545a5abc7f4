"""What a decoder of the Llama family is made of, in numbers.

One record serves ``tiny``, Llama, Qwen2 and Qwen3: they differ in a few flags and in how rotary positions are
scaled. Does not: read files (``models/loading`` does), hold weights, or know the engine's limits.
Source: the keys of a Hugging Face ``config.json`` and of GGUF's ``llama.*`` metadata, under one set of names.
"""

import dataclasses
import enum
from typing import Any

from engine.errors import ModelError


class RopeScalingKind(enum.StrEnum):
    """How rotary frequencies are stretched for long contexts."""

    NONE = "none"
    LINEAR = "linear"
    LLAMA3 = "llama3"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary position embedding.

    factor: how far positions are stretched (linear), or low frequencies (llama3). low_freq_factor, high_freq_factor
    and original_max_position belong to llama3: frequencies between the two bounds are blended.
    explicit_factors: divisors of each frequency as a GGUF file stores them (D/2 numbers); they replace ``kind``.
    """

    theta: float = 10000.0
    kind: RopeScalingKind = RopeScalingKind.NONE
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192
    explicit_factors: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelFeatures:
    """Flags in which the architectures differ."""

    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes of one model. Letters as in ``engine/shapes.py``: vocab V, hidden M, heads H, kv heads G, head size D."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    rms_norm_eps: float
    max_position: int
    rope: RopeConfig = dataclasses.field(default_factory=RopeConfig)
    features: ModelFeatures = dataclasses.field(default_factory=ModelFeatures)

    def __post_init__(self) -> None:
        """Check that the sizes fit together. Raises: ModelError, which names the size."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and (not isinstance(value, int) or value < 1):
                message = f"{field.name} must be a positive integer, got {value!r}"
                raise ModelError(message)
        if self.num_heads % self.num_kv_heads or self.head_size % 2:
            message = (
                f"num_heads must be a multiple of num_kv_heads and head_size even, got num_heads={self.num_heads}, "
                f"num_kv_heads={self.num_kv_heads}, head_size={self.head_size}"
            )
            raise ModelError(message)

    @property
    def tie_word_embeddings(self) -> bool:
        """Whether the LM head is the embedding matrix."""
        return self.features.tie_word_embeddings

    @property
    def query_size(self) -> int:
        """Width of all query heads together: H x D."""
        return self.num_heads * self.head_size

    @property
    def kv_size(self) -> int:
        """Width of all key heads together: G x D."""
        return self.num_kv_heads * self.head_size

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; ``from_dict`` is the inverse."""
        return dataclasses.asdict(self)


def config_from_dict(values: dict[str, Any]) -> ModelConfig:
    """Rebuild a config from ``ModelConfig.to_dict`` after a round trip through JSON.

    Raises: KeyError or TypeError when the values are not such a dict (the cache then counts as corrupt).
    """
    plain = dict(values)
    rope: dict[str, Any] = dict(plain.pop("rope"))
    features: dict[str, Any] = plain.pop("features")
    rope["kind"] = RopeScalingKind(rope["kind"])
    rope["explicit_factors"] = tuple(rope["explicit_factors"])
    return ModelConfig(**plain, rope=RopeConfig(**rope), features=ModelFeatures(**features))

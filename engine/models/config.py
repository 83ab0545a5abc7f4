"""What a decoder of the Llama family is made of, in numbers.

One record serves ``tiny``, Llama, Qwen2 and Qwen3: they differ in a few flags and in how rotary positions are
scaled. Does not: read files (``models/loading`` does), hold weights, or know the engine's limits.
Source: the keys of a Hugging Face ``config.json`` and of GGUF's ``llama.*`` metadata, under one set of names.
"""

import dataclasses
import enum
from typing import Any, Final

from engine import fields
from engine.errors import ModelError

# Ten times what the largest published models of this family have; a damaged file may ask for billions.
MOST: Final[dict[str, int]] = {
    "vocab_size": 1 << 22,
    "hidden_size": 1 << 18,
    "intermediate_size": 1 << 20,
    "num_layers": 1 << 12,
    "num_heads": 1 << 12,
    "num_kv_heads": 1 << 12,
    "head_size": 1 << 12,
    "max_position": 1 << 32,
}


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

    def __post_init__(self) -> None:
        """Check that every frequency comes out finite. Raises: ModelError, which names the number."""
        for name in ("theta", "factor", "low_freq_factor", "high_freq_factor"):
            fields.number(f"rope {name}", getattr(self, name), 0.0, refusal=ModelError, low_open=True)
        fields.integer("rope original_max_position", self.original_max_position, refusal=ModelError, low=1)
        for i, factor in enumerate(self.explicit_factors):
            fields.number(f"rope factor {i}", factor, 0.0, refusal=ModelError, low_open=True)
        if self.kind is RopeScalingKind.LLAMA3 and self.high_freq_factor <= self.low_freq_factor:
            message = (
                f"rope high_freq_factor must be above low_freq_factor={self.low_freq_factor}, got "
                f"{self.high_freq_factor}"
            )
            raise ModelError(message)


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
        for name, most in MOST.items():
            fields.integer(name, getattr(self, name), refusal=ModelError, low=1, at_most=most)
        fields.number("rms_norm_eps", self.rms_norm_eps, 0.0, 1.0, refusal=ModelError)
        if self.num_heads % self.num_kv_heads or self.head_size % 2:
            message = (
                f"num_heads must be a multiple of num_kv_heads and head_size even, got num_heads={self.num_heads}, "
                f"num_kv_heads={self.num_kv_heads}, head_size={self.head_size}"
            )
            raise ModelError(message)
        if self.rope.explicit_factors and len(self.rope.explicit_factors) != self.head_size // 2:
            message = f"rope factors must be {self.head_size // 2}, half a head, got {len(self.rope.explicit_factors)}"
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

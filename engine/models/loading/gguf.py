"""GGUF files: configuration, weights and tokenizer data of a llama-architecture model.

Weights are dequantised to the engine's dtype in slices, so that a large matrix never exists twice in float32.
Does not: build tokenizers (``loading/tokenizer.py``), keep a converted copy (``loading/cache.py``), or compute on
quantised weights. Source: the GGUF format as llama.cpp writes it, read through the ``gguf`` package.
"""

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from engine.errors import ModelError
from engine.models.config import ModelConfig, ModelFeatures, RopeConfig, RopeScalingKind
from engine.models.loading.layout import read_weights
from engine.models.loading.tokenizer import GGUFVocabulary

if TYPE_CHECKING:
    from engine.models.loading.gguf_reader import StoredTensor

SUPPORTED_TYPES: Final = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K")
# Whole blocks of every type, which stay in a processor's cache; no more than torch copies without waking other threads.
_SLICE_ELEMENTS = 1 << 15

_WHOLE_NAMES = {
    "embedding.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER_NAMES = {
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


class GGUFFile:
    """A GGUF file, questions asked in the engine's terms. Nothing stays open between them.

    Raises: ModelError, at opening or at any question, when the file is no GGUF, is damaged, or holds an
    architecture, tensor type or feature that the engine does not run; the message names it.
    """

    def __init__(self, path: Path) -> None:
        """Index the file; tensor data stay on disk."""
        from engine.models.loading.gguf_reader import read_gguf

        self.path = path
        self._values, self._tensors = read_gguf(path)
        with self._oddities_named():
            self.config = self._parse_config()

    @contextlib.contextmanager
    def _oddities_named(self) -> Generator[None]:
        """Name the file when a value has another type than it should."""
        try:
            yield
        except ModelError:
            raise
        except (TypeError, ValueError, ArithmeticError) as error:
            message = f"{self.path} holds a value of an unexpected kind ({error}); download it again"
            raise ModelError(message) from error

    def _value(self, key: str, default: Any = None) -> Any:
        return self._values.get(key, default)

    def _required(self, key: str) -> Any:
        if key not in self._values:
            message = f"{self.path} lacks the key {key!r}, which a llama-architecture GGUF must have"
            raise ModelError(message)
        return self._values[key]

    def _integer(self, key: str, default: int | None = None) -> int:
        value = self._required(key) if default is None else self._value(key, default)
        if not isinstance(value, int) or value < 1:
            message = f"{self.path} must set {key} to a positive integer, got {value!r}"
            raise ModelError(message)
        return value

    def _parse_config(self) -> ModelConfig:
        architecture = self._required("general.architecture")
        if architecture != "llama":
            message = f"{self.path} has architecture {architecture!r}; GGUF files must have 'llama'"
            raise ModelError(message)
        self._check_features()
        num_heads = self._integer("llama.attention.head_count")
        hidden_size = self._integer("llama.embedding_length")
        head_size = self._integer("llama.attention.key_length", hidden_size // num_heads)
        self._require_equal("llama.rope.dimension_count", head_size)
        self._require_equal("llama.attention.value_length", head_size)
        return ModelConfig(
            architecture="llama",
            vocab_size=self._tensor("token_embd.weight").shape[0],
            hidden_size=hidden_size,
            intermediate_size=self._integer("llama.feed_forward_length"),
            num_layers=self._integer("llama.block_count"),
            num_heads=num_heads,
            num_kv_heads=self._integer("llama.attention.head_count_kv", num_heads),
            head_size=head_size,
            rms_norm_eps=float(self._required("llama.attention.layer_norm_rms_epsilon")),
            max_position=self._integer("llama.context_length"),
            rope=self._rope(head_size),
            features=ModelFeatures(
                tie_word_embeddings="output.weight" not in self._tensors,
                qkv_bias="blk.0.attn_q.bias" in self._tensors,
                output_bias="blk.0.attn_output.bias" in self._tensors,
                mlp_bias="blk.0.ffn_gate.bias" in self._tensors,
            ),
        )

    def _check_features(self) -> None:
        for key, neutral in (
            ("llama.expert_count", 0),
            ("llama.attention.sliding_window", 0),
            ("split.count", 1),
            ("llama.attention.scale", 0.0),
        ):
            if self._value(key, neutral) not in (neutral, 0):
                message = f"{self.path} sets {key}={self._value(key)!r}, which is not supported (only {neutral})"
                raise ModelError(message)

    def _require_equal(self, key: str, expected: int) -> None:
        got = self._value(key, expected)
        if got != expected:
            message = f"{self.path} sets {key}={got!r}; only the head size, {expected}, is supported"
            raise ModelError(message)

    def _rope(self, head_size: int) -> RopeConfig:
        kind = self._value("llama.rope.scaling.type", "none")
        if kind not in ("none", "linear"):
            message = f"{self.path} sets llama.rope.scaling.type={kind!r}; supported are 'none' and 'linear'"
            raise ModelError(message)
        factors: tuple[float, ...] = ()
        if "rope_freqs.weight" in self._tensors:
            values = torch.empty(head_size // 2)
            self._read("rope_freqs.weight", values)
            factors = tuple(values.tolist())
        return RopeConfig(
            theta=float(self._value("llama.rope.freq_base", 10000.0)),
            kind=RopeScalingKind(kind),
            factor=float(self._value("llama.rope.scaling.factor", 1.0)),
            explicit_factors=factors,
        )

    def _tensor(self, name: str) -> "StoredTensor":
        if name not in self._tensors:
            message = f"{self.path} lacks the tensor {name!r}"
            raise ModelError(message)
        return self._tensors[name]

    def weights(self, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        """Dequantise one engine weight after the other. Order and names: ``loading/layout.py``."""

        def read_part(part: str, goal: torch.Tensor) -> None:
            kind = part.split(".")[-2]
            num_heads = {"q": self.config.num_heads, "k": self.config.num_kv_heads}.get(kind)
            if num_heads is None:
                self._read(_file_name(part), goal)
            else:
                stored = torch.empty_like(goal)
                self._read(_file_name(part), stored)
                pairs = _halves_as_pairs(goal, num_heads)
                pairs.copy_(stored.view(pairs.shape))

        return read_weights(self.config, dtype, read_part)

    def _read(self, name: str, goal: torch.Tensor) -> None:
        """Dequantise a tensor into one of the same shape."""
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        tensor = self._tensor(name)
        if tensor.shape != tuple(goal.shape):
            message = f"{self.path}: tensor {tensor.name!r} must have shape {tuple(goal.shape)}, got {tensor.shape}"
            raise ModelError(message)
        if tensor.type_name not in SUPPORTED_TYPES:
            message = (
                f"{self.path}: tensor {tensor.name!r} has type {tensor.type_name}; "
                f"supported are {', '.join(SUPPORTED_TYPES)}"
            )
            raise ModelError(message)
        kind = GGMLQuantizationType[tensor.type_name]
        values = goal.view(-1)
        with self.path.open("rb") as file:
            file.seek(tensor.offset)
            for some in values.split(_SLICE_ELEMENTS):
                num_bytes = some.shape[0] * tensor.num_bytes // values.shape[0]
                data = np.frombuffer(file.read(num_bytes), np.uint8)
                if len(data) != num_bytes:  # it was longer when its header was read
                    message = f"{self.path} is truncated inside tensor {tensor.name!r}; download it again"
                    raise ModelError(message)
                some.copy_(torch.from_numpy(np.require(dequantize(data, kind), requirements="W")))

    def vocabulary(self) -> GGUFVocabulary:
        """Read the tokenizer's part of the file."""
        with self._oddities_named():
            return self._parse_vocabulary()

    def _parse_vocabulary(self) -> GGUFVocabulary:
        def integer(key: str) -> int | None:
            value = self._value(f"tokenizer.ggml.{key}")
            return None if value is None else int(value)

        ends = map(integer, ("eos_token_id", "eot_token_id", "eom_token_id"))
        return GGUFVocabulary(
            model=str(self._required("tokenizer.ggml.model")),
            pre=str(self._value("tokenizer.ggml.pre", "")),
            tokens=tuple(self._required("tokenizer.ggml.tokens")),
            token_types=tuple(self._value("tokenizer.ggml.token_type", ())),
            merges=tuple(self._value("tokenizer.ggml.merges", ())),
            scores=tuple(self._value("tokenizer.ggml.scores", ())),
            bos_token_id=integer("bos_token_id"),
            eos_token_ids=tuple(i for i in ends if i is not None),
            add_bos=bool(self._value("tokenizer.ggml.add_bos_token", default=False)),
            add_space_prefix=bool(self._value("tokenizer.ggml.add_space_prefix", default=True)),
            chat_template=self._value("tokenizer.chat_template"),
        )


def _file_name(part: str) -> str:
    """Give GGUF's name of a part: layers.3.q.weight -> blk.3.attn_q.weight."""
    if part in _WHOLE_NAMES:
        return _WHOLE_NAMES[part]
    _, layer, kind, suffix = part.split(".")
    return f"blk.{layer}.{_LAYER_NAMES[kind]}.{suffix}"


def _halves_as_pairs(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """View the engine's query or key rows in GGUF's order.

    llama.cpp rotates dimensions 2j and 2j + 1 together, the engine j and j + D/2; the files' rows are permuted for
    the former. Shapes: [heads x D, ...] -> [heads, D/2, 2, ...].
    """
    return weight.view(num_heads, 2, -1, *weight.shape[1:]).transpose(1, 2)

"""GGUF files: configuration, weights and tokenizer data of a llama-architecture model.

Weights are dequantised to the engine's dtype in slices, so that a large matrix never exists twice in float32.
Does not: build tokenizers (``loading/tokenizer.py``), keep a converted copy (``loading/cache.py``), or compute on
quantised weights. Source: the GGUF format as llama.cpp writes it, read through the ``gguf`` package.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from engine import fields
from engine.errors import ModelError
from engine.models.chat import require_template
from engine.models.config import MOST, ModelConfig, ModelFeatures, RopeConfig, RopeScalingKind
from engine.models.loading.entries import Entries, naming
from engine.models.loading.finite import require_finite
from engine.models.loading.layout import Shape, read_weights, weight_parts
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
        values, self._tensors = read_gguf(path)
        self._given = Entries(values)
        with naming(path):
            self.config = self._parse_config()

    def _parse_config(self) -> ModelConfig:
        given = self._given
        architecture = given.text("general.architecture")
        if architecture != "llama":
            given.refuse("general.architecture", "'llama'")
        self._check_features()
        hidden_size = self._size("llama.embedding_length", "hidden_size")
        num_heads = self._size("llama.attention.head_count", "num_heads")
        if "llama.attention.key_length" not in given and hidden_size % num_heads:
            given.refuse("llama.embedding_length", f"a multiple of llama.attention.head_count={num_heads}")
        head_size = self._size("llama.attention.key_length", "head_size", hidden_size // num_heads)
        self._require_equal("llama.rope.dimension_count", head_size)
        self._require_equal("llama.attention.value_length", head_size)
        return ModelConfig(
            architecture="llama",
            vocab_size=self._tensor("token_embd.weight").shape[0],
            hidden_size=hidden_size,
            intermediate_size=self._size("llama.feed_forward_length", "intermediate_size"),
            num_layers=self._size("llama.block_count", "num_layers"),
            num_heads=num_heads,
            num_kv_heads=self._size("llama.attention.head_count_kv", "num_kv_heads", num_heads),
            head_size=head_size,
            rms_norm_eps=given.number("llama.attention.layer_norm_rms_epsilon", high=1.0, low_open=False),
            max_position=self._size("llama.context_length", "max_position"),
            rope=self._rope(head_size),
            features=ModelFeatures(
                tie_word_embeddings="output.weight" not in self._tensors,
                qkv_bias="blk.0.attn_q.bias" in self._tensors,
                output_bias="blk.0.attn_output.bias" in self._tensors,
                mlp_bias="blk.0.ffn_gate.bias" in self._tensors,
            ),
        )

    def _size(self, key: str, size: str, default: int | None = None) -> int:
        return self._given.integer(key, default, at_most=MOST[size])

    def _check_features(self) -> None:
        for key, neutral in (
            ("llama.expert_count", 0),
            ("llama.attention.sliding_window", 0),
            ("split.count", 1),
            ("llama.attention.scale", 0.0),
        ):
            if self._given.raw(key, neutral) not in (neutral, 0):
                self._given.refuse(key, f"{neutral} (nothing else is supported)")

    def _require_equal(self, key: str, expected: int) -> None:
        if self._given.raw(key, expected) != expected:
            self._given.refuse(key, f"the head size, {expected} (nothing else is supported)")

    def _rope(self, head_size: int) -> RopeConfig:
        given = self._given
        kind = given.text("llama.rope.scaling.type", "none")
        if kind not in ("none", "linear"):
            given.refuse("llama.rope.scaling.type", "'none' or 'linear'")
        factors: tuple[float, ...] = ()
        if "rope_freqs.weight" in self._tensors:
            values = torch.empty(head_size // 2)
            self._read("rope_freqs.weight", values)
            factors = tuple(values.tolist())
        return RopeConfig(
            theta=given.number("llama.rope.freq_base", 10000.0),
            kind=RopeScalingKind(kind),
            factor=given.number("llama.rope.scaling.factor", 1.0),
            explicit_factors=factors,
        )

    def _tensor(self, name: str) -> "StoredTensor":
        if name not in self._tensors:
            message = f"the tensor {name!r} is missing"
            raise ModelError(message)
        return self._tensors[name]

    def _require_stored(self, name: str, shape: Shape) -> None:
        """Check presence, shape and type of a tensor by the file's header."""
        tensor = self._tensor(name)
        if tensor.shape != shape:
            message = f"tensor {name!r} must have shape {shape}, got {tensor.shape}"
            raise ModelError(message)
        if tensor.type_name not in SUPPORTED_TYPES:
            message = f"tensor {name!r} has type {tensor.type_name}; supported are {', '.join(SUPPORTED_TYPES)}"
            raise ModelError(message)

    def weights(self, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
        """Dequantise one engine weight after the other. Order and names: ``loading/layout.py``."""
        with naming(self.path):  # before memory is taken for any of them
            for parts in weight_parts(self.config).values():
                for part, shape in parts:
                    self._require_stored(_file_name(part), shape)

        def read_part(part: str, goal: torch.Tensor) -> None:
            kind = part.split(".")[-2]
            num_heads = {"q": self.config.num_heads, "k": self.config.num_kv_heads}.get(kind)
            if num_heads is None:
                with naming(self.path):
                    self._read(_file_name(part), goal)
            else:
                stored = torch.empty_like(goal)
                with naming(self.path):
                    self._read(_file_name(part), stored)
                pairs = _halves_as_pairs(goal, num_heads)
                pairs.copy_(stored.view(pairs.shape))

        return read_weights(self.config, dtype, read_part)

    def _read(self, name: str, goal: torch.Tensor) -> None:
        """Dequantise a tensor into one of the same shape."""
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        self._require_stored(name, tuple(goal.shape))
        tensor = self._tensor(name)
        kind = GGMLQuantizationType[tensor.type_name]
        values = goal.view(-1)
        with self.path.open("rb") as file:
            file.seek(tensor.offset)
            for some in values.split(_SLICE_ELEMENTS):
                num_bytes = some.shape[0] * tensor.num_bytes // values.shape[0]
                data = np.frombuffer(file.read(num_bytes), np.uint8)
                if len(data) != num_bytes:  # it was longer when its header was read
                    message = f"the file ends inside tensor {name!r}; download it again"
                    raise ModelError(message)
                some.copy_(torch.from_numpy(np.require(dequantize(data, kind), requirements="W")))
        require_finite(f"tensor {name!r}", goal)

    def vocabulary(self) -> GGUFVocabulary:
        """Read the tokenizer's part of the file."""
        with naming(self.path):
            return self._parse_vocabulary()

    def _parse_vocabulary(self) -> GGUFVocabulary:
        given, last = self._given, self.config.vocab_size - 1
        prefix = "tokenizer.ggml."

        def token_id(key: str) -> int | None:
            name = prefix + key
            value = given.raw(name)
            return None if value is None else fields.integer(name, value, refusal=ModelError, low=0, high=last)

        tokens = given.listed(prefix + "tokens", "text")
        if not 0 < len(tokens) <= self.config.vocab_size:
            message = (
                f"{prefix}tokens must hold 1 to {self.config.vocab_size} texts, the rows of token_embd.weight, "
                f"got {len(tokens)}"
            )
            raise ModelError(message)
        ends = map(token_id, ("eos_token_id", "eot_token_id", "eom_token_id"))
        template = given.text("tokenizer.chat_template", "")
        require_template("tokenizer.chat_template", template)
        return GGUFVocabulary(
            model=given.text(prefix + "model"),
            pre=given.text(prefix + "pre", ""),
            tokens=tokens,
            token_types=given.listed(prefix + "token_type", "integer", length=len(tokens)),
            merges=given.listed(prefix + "merges", "text"),
            scores=given.listed(prefix + "scores", "number", length=len(tokens)),
            bos_token_id=token_id("bos_token_id"),
            eos_token_ids=tuple(i for i in ends if i is not None),
            add_bos=given.flag(prefix + "add_bos_token", default=False),
            add_space_prefix=given.flag(prefix + "add_space_prefix", default=True),
            chat_template=template or None,
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

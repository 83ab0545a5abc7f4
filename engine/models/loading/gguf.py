"""GGUF files: configuration, weights and tokenizer data of a llama-architecture model.

Weights are dequantised to the engine's dtype in slices of rows, so that a large matrix never exists twice in
float32. Does not: build tokenizers (``loading/tokenizer.py``), keep a converted copy (``loading/cache.py``), or
compute on quantised weights. Source: the GGUF format as llama.cpp writes it, read through the ``gguf`` package.
"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from engine.errors import ModelError
from engine.models.config import ModelConfig, ModelFeatures, RopeConfig, RopeScalingKind
from engine.models.loading.layout import Shape, read_weights
from engine.models.loading.tokenizer import GGUFVocabulary

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor

SUPPORTED_TYPES: Final = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K")
_SLICE_ELEMENTS = 1 << 22

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


@dataclasses.dataclass(frozen=True, slots=True)
class GGUFContents:
    """What a file holds, in the engine's terms."""

    config: ModelConfig
    weights: dict[str, torch.Tensor]
    vocabulary: GGUFVocabulary


def read_gguf(path: Path, dtype: torch.dtype) -> GGUFContents:
    """Read a whole file.

    Raises: ModelError when the file is no GGUF, is damaged, or holds an architecture, tensor type or feature that
    the engine does not run; the message names it.
    """
    _check_magic(path)
    from gguf import GGUFReader

    # The package has no error type of its own: damage shows as whatever the parsing stumbles over.
    try:
        file = _File(path, GGUFReader(str(path)))
        config = file.config()
        return GGUFContents(config, read_weights(config, file.part_reader(config, dtype)), file.vocabulary())
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        if isinstance(error, ModelError):
            raise
        message = f"{path} is truncated or damaged ({type(error).__name__}: {error}); download it again"
        raise ModelError(message) from error


def _check_magic(path: Path) -> None:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        message = f"{path} is not a GGUF file: it must begin with b'GGUF', got {magic!r}"
        raise ModelError(message)


class _File:
    """An open reader, with the engine's questions to it."""

    def __init__(self, path: Path, reader: "GGUFReader") -> None:
        self.path = path
        self.reader = reader
        self.tensors: dict[str, ReaderTensor] = {tensor.name: tensor for tensor in reader.tensors}

    def value(self, key: str, default: object = None) -> object:
        field = self.reader.get_field(key)
        return default if field is None else field.contents()

    def required(self, key: str) -> object:
        value = self.value(key)
        if value is None:
            message = f"{self.path} lacks the key {key!r}, which a llama-architecture GGUF must have"
            raise ModelError(message)
        return value

    def config(self) -> ModelConfig:
        architecture = self.required("general.architecture")
        if architecture != "llama":
            message = f"{self.path} has architecture {architecture!r}; GGUF files must have 'llama'"
            raise ModelError(message)
        self._check_features()
        num_heads = int(self.required("llama.attention.head_count"))
        hidden_size = int(self.required("llama.embedding_length"))
        head_size = int(self.value("llama.attention.key_length", hidden_size // num_heads))
        self._require_equal("llama.rope.dimension_count", head_size)
        self._require_equal("llama.attention.value_length", head_size)
        return ModelConfig(
            architecture="llama",
            vocab_size=int(self._tensor("token_embd.weight").shape[1]),
            hidden_size=hidden_size,
            intermediate_size=int(self.required("llama.feed_forward_length")),
            num_layers=int(self.required("llama.block_count")),
            num_heads=num_heads,
            num_kv_heads=int(self.value("llama.attention.head_count_kv", num_heads)),
            head_size=head_size,
            rms_norm_eps=float(self.required("llama.attention.layer_norm_rms_epsilon")),
            max_position=int(self.required("llama.context_length")),
            rope=self._rope(),
            features=ModelFeatures(
                tie_word_embeddings="output.weight" not in self.tensors,
                qkv_bias="blk.0.attn_q.bias" in self.tensors,
                output_bias="blk.0.attn_output.bias" in self.tensors,
                mlp_bias="blk.0.ffn_gate.bias" in self.tensors,
            ),
        )

    def _check_features(self) -> None:
        for key, neutral in (
            ("llama.expert_count", 0),
            ("llama.attention.sliding_window", 0),
            ("split.count", 1),
            ("llama.attention.scale", 0.0),
        ):
            if self.value(key, neutral) not in (neutral, 0):
                message = f"{self.path} sets {key}={self.value(key)!r}, which is not supported (only {neutral})"
                raise ModelError(message)

    def _require_equal(self, key: str, expected: int) -> None:
        got = self.value(key, expected)
        if got != expected:
            message = f"{self.path} sets {key}={got!r}; only the head size, {expected}, is supported"
            raise ModelError(message)

    def _rope(self) -> RopeConfig:
        kind = self.value("llama.rope.scaling.type", "none")
        if kind not in ("none", "linear"):
            message = f"{self.path} sets llama.rope.scaling.type={kind!r}; supported are 'none' and 'linear'"
            raise ModelError(message)
        factors: tuple[float, ...] = ()
        if "rope_freqs.weight" in self.tensors:
            factors = tuple(float(x) for x in self.tensors["rope_freqs.weight"].data)
        return RopeConfig(
            theta=float(self.value("llama.rope.freq_base", 10000.0)),
            kind=RopeScalingKind(kind),
            factor=float(self.value("llama.rope.scaling.factor", 1.0)),
            explicit_factors=factors,
        )

    def _tensor(self, name: str) -> "ReaderTensor":
        if name not in self.tensors:
            message = f"{self.path} lacks the tensor {name!r}"
            raise ModelError(message)
        return self.tensors[name]

    def part_reader(self, config: ModelConfig, dtype: torch.dtype):  # noqa: ANN202
        """Give a ReadPart over this file."""

        def read_part(part: str, shape: Shape) -> torch.Tensor:
            tensor = self._tensor(_file_name(part))
            got = tuple(int(n) for n in reversed(tensor.shape))
            if got != shape:
                message = f"{self.path}: tensor {tensor.name!r} must have shape {shape}, got {got}"
                raise ModelError(message)
            weight = self._dequantize(tensor, shape, dtype)
            kind = part.split(".")[-2]
            num_heads = {"q": config.num_heads, "k": config.num_kv_heads}.get(kind)
            return weight if num_heads is None else _pairs_to_halves(weight, num_heads)

        return read_part

    def _dequantize(self, tensor: "ReaderTensor", shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        from gguf.quants import dequantize

        type_name = tensor.tensor_type.name
        if type_name not in SUPPORTED_TYPES:
            message = (
                f"{self.path}: tensor {tensor.name!r} has type {type_name}; supported are {', '.join(SUPPORTED_TYPES)}"
            )
            raise ModelError(message)
        weight = torch.empty(shape, dtype=dtype)
        rows = max(1, _SLICE_ELEMENTS // shape[-1]) if len(shape) > 1 else shape[0]
        for start in range(0, shape[0], rows):
            values = dequantize(tensor.data[start : start + rows], tensor.tensor_type)
            weight[start : start + rows] = torch.from_numpy(values)
        return weight

    def vocabulary(self) -> GGUFVocabulary:
        def integer(key: str) -> int | None:
            value = self.value(f"tokenizer.ggml.{key}")
            return None if value is None else int(value)

        return GGUFVocabulary(
            model=str(self.required("tokenizer.ggml.model")),
            pre=str(self.value("tokenizer.ggml.pre", "")),
            tokens=tuple(self.required("tokenizer.ggml.tokens")),
            token_types=tuple(self.value("tokenizer.ggml.token_type", ())),
            merges=tuple(self.value("tokenizer.ggml.merges", ())),
            scores=tuple(self.value("tokenizer.ggml.scores", ())),
            bos_token_id=integer("bos_token_id"),
            eos_token_ids=tuple(i for i in map(integer, ("eos_token_id", "eot_token_id", "eom_token_id")) if i is not None),
            add_bos=bool(self.value("tokenizer.ggml.add_bos_token", False)),
            add_space_prefix=bool(self.value("tokenizer.ggml.add_space_prefix", True)),
            chat_template=self.value("tokenizer.chat_template"),
        )


def _file_name(part: str) -> str:
    """Give GGUF's name of a part: layers.3.q.weight -> blk.3.attn_q.weight."""
    if part in _WHOLE_NAMES:
        return _WHOLE_NAMES[part]
    _, layer, kind, suffix = part.split(".")
    return f"blk.{layer}.{_LAYER_NAMES[kind]}.{suffix}"


def _pairs_to_halves(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Undo GGUF's order of query and key rows.

    llama.cpp rotates dimensions 2j and 2j + 1 together, the engine j and j + D/2; the files' rows are permuted for
    the former. Shapes: [heads x D, ...] -> the same.
    """
    pairs = weight.view(num_heads, -1, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)

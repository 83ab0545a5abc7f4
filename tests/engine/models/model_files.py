"""Makes what the model tests load: small random Hugging Face folders and GGUF files, and a dense attention.

Does not: use any of the engine's loading code, so that it is an independent witness.
"""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional

from engine.attention.interface import AttentionMetadata, AttentionStep
from engine.device import DeviceSpec
from engine.models.llama import CausalLM

CPU = DeviceSpec(torch.device("cpu"), torch.float32, is_cuda=False)
CORPUS = ["The capital of France is Paris.", "A bee sees 42 trees; three were free.", "naïve café 你好 🙂 " * 3]


class DenseAttention(AttentionMetadata):
    """One sequence from position 0, nothing cached: plain causal attention."""

    step = None
    written = ()

    def prepare(self, step: AttentionStep) -> None:
        self.step = step

    def advance(self, step) -> None:
        self.step = None

    def derive_kv_lens(self, start, end, derive):
        derive(torch.zeros(end - start, dtype=torch.int32))

    def attend(self, layer, query, key, value, position_ids):
        groups = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(groups, 1).transpose(0, 1) for x in (key, value))
        return functional.scaled_dot_product_attention(query.transpose(0, 1), key, value, is_causal=True).transpose(
            0, 1
        )

    def tensors(self):
        return {}


@torch.inference_mode()
def dense_logits(model: CausalLM, ids: list[int]) -> torch.Tensor:
    """Logits of every position, [N, V]."""
    positions = torch.arange(len(ids), dtype=torch.int32).view(1, 1, -1)
    hidden = model(torch.tensor(ids, dtype=torch.int32), positions, DenseAttention())
    return model.compute_logits(hidden)


def small_tokenizer(vocab_size: int = 320, specials: tuple[str, ...] = ("<|bos|>", "<|eos|>")) -> Tokenizer:
    """A byte-level BPE trained on a few sentences; special tokens come first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=sorted(alphabet), special_tokens=list(specials), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def write_folder(folder: Path, model: Any, **tokenizer_config: Any) -> Path:
    """Save a transformers model with a small tokenizer beside it."""
    model.save_pretrained(folder)
    small_tokenizer().save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<|bos|>", "eos_token": "<|eos|>"} | tokenizer_config
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


GGUF_SIZES = {"hidden": 256, "width": 256, "heads": 4, "kv_heads": 2, "layers": 2}


def gguf_matrices(sizes: dict[str, int] = GGUF_SIZES, vocab_size: int = 320) -> dict[str, tuple[int, int]]:
    """Shapes of every matrix in a small llama GGUF, rows first."""
    hidden, width = sizes["hidden"], sizes["width"]
    kv = hidden // sizes["heads"] * sizes["kv_heads"]
    shapes = {"token_embd.weight": (vocab_size, hidden)}
    for i in range(sizes["layers"]):
        shapes |= {
            f"blk.{i}.attn_q.weight": (hidden, hidden),
            f"blk.{i}.attn_k.weight": (kv, hidden),
            f"blk.{i}.attn_v.weight": (kv, hidden),
            f"blk.{i}.attn_output.weight": (hidden, hidden),
            f"blk.{i}.ffn_gate.weight": (width, hidden),
            f"blk.{i}.ffn_up.weight": (width, hidden),
            f"blk.{i}.ffn_down.weight": (hidden, width),
        }
    return shapes


def random_quantized(shape: tuple[int, int], kind: GGMLQuantizationType, rng: np.random.Generator) -> np.ndarray:
    """Bytes (or floats) of a random matrix in a type; K-quants, which the package cannot write, block by block."""
    if kind in (GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q6_K):
        blocks = shape[0] * shape[1] // 256
        if kind is GGMLQuantizationType.Q4_K:
            scales = rng.uniform(0.0005, 0.002, (blocks, 2)).astype(np.float16).view(np.uint8)
            data = np.concatenate([scales, rng.integers(0, 256, (blocks, 140), np.uint8)], axis=1)
        else:
            scale = rng.uniform(0.0001, 0.0003, (blocks, 1)).astype(np.float16).view(np.uint8)
            data = np.concatenate([rng.integers(0, 256, (blocks, 208), np.uint8), scale], axis=1)
        return data.reshape(shape[0], -1)
    values = (rng.standard_normal(shape) * 0.06).astype(np.float32)
    if kind is GGMLQuantizationType.F32:
        return values
    return values.astype(np.float16) if kind is GGMLQuantizationType.F16 else gguf.quants.quantize(values, kind)


def write_gguf(path: Path, kind: GGMLQuantizationType, *, architecture: str = "llama", seed: int = 0, **changed: Any):
    """Write a small llama GGUF; gives each tensor's values as float32, in the file's own row order.

    changed: metadata keys (dots as double underscores) to set besides, or None to leave out.
    """
    sizes, rng = GGUF_SIZES, np.random.default_rng(seed)
    writer = GGUFWriter(path, architecture)
    tokenizer = json.loads(small_tokenizer().to_str())
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    metadata: dict[str, Any] = {
        "llama.context_length": 512,
        "llama.embedding_length": sizes["hidden"],
        "llama.feed_forward_length": sizes["width"],
        "llama.block_count": sizes["layers"],
        "llama.attention.head_count": sizes["heads"],
        "llama.attention.head_count_kv": sizes["kv_heads"],
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [token for token, _ in vocabulary],
        "tokenizer.ggml.token_type": [3 if i < 2 else 1 for _, i in vocabulary],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in tokenizer["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    } | {key.replace("__", "."): value for key, value in changed.items()}
    for key, value in metadata.items():
        _add(writer, key, value)
    dense = {}
    for name, shape in gguf_matrices().items():
        data = random_quantized(shape, kind, rng)
        writer.add_tensor(name, data, raw_dtype=kind)
        dense[name] = gguf.quants.dequantize(data, kind)
    norms = ["output_norm.weight"]
    norms += [f"blk.{i}.{norm}.weight" for i in range(sizes["layers"]) for norm in ("attn_norm", "ffn_norm")]
    for name in norms:
        dense[name] = rng.uniform(0.5, 1.5, sizes["hidden"]).astype(np.float32)
        writer.add_tensor(name, dense[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return dense


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value is not None:
        writer.add_array(key, value)

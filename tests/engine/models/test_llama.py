"""The engine's forward against ``transformers``, on small random-weight folders."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.models.registry import load_model
from tests.engine.models.model_files import CPU, dense_logits, write_folder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

IDS = [5, 17, 300, 44, 2, 0, 199, 63, 80, 81, 7, 250] * 6
SIZES = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama, tied embeddings": ("Llama", {"tie_word_embeddings": True}),
    "llama, biases everywhere": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, wide heads": ("Llama", {"head_dim": 32}),
    "llama, one key head": ("Llama", {"num_key_value_heads": 1}),
    "llama, rope scaling llama3": ("Llama", {"rope_parameters": LLAMA3}),
    "llama, rope scaling linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
    ),
    "qwen2": ("Qwen2", {}),
    "qwen2, tied embeddings": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3, biases": ("Qwen3", {"head_dim": 16, "attention_bias": True}),
}


def random_model(family: str, changes: dict[str, Any]) -> Any:
    """A transformers model with random weights; biases and norms too, which start at 0 and 1 there."""
    torch.manual_seed(7)
    config = getattr(transformers, f"{family}Config")(**(SIZES | changes))
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            parameter.data.uniform_(0.5, 1.5)
    return model


@torch.inference_mode()
def reference_logits(model: Any) -> torch.Tensor:
    return model(torch.tensor([IDS])).logits[0]


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_those_of_transformers(case: str, tmp_path: Path):
    model = random_model(*CASES[case])
    loaded = load_model(str(write_folder(tmp_path, model)), CPU, max_seq_len=128)
    torch.testing.assert_close(dense_logits(loaded.model, IDS), reference_logits(model), atol=1e-4, rtol=1e-4)


def test_shards_and_bfloat16_weights_load_too(tmp_path: Path):
    model = random_model("Llama", {}).to(torch.bfloat16)
    write_folder(tmp_path, model)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    loaded = load_model(str(tmp_path), CPU, max_seq_len=128)
    reference = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    torch.testing.assert_close(dense_logits(loaded.model, IDS), reference_logits(reference), atol=1e-4, rtol=1e-4)


def test_only_the_given_rows_reach_the_head():
    loaded = load_model("tiny", CPU, max_seq_len=64)
    with torch.inference_mode():
        hidden = torch.randn(5, loaded.config.hidden_size)
        rows = loaded.model.compute_logits(hidden[[1, 4]])
    assert rows.shape == (2, loaded.config.vocab_size)
    assert rows.dtype is torch.float32


def test_everything_the_forward_reads_is_a_parameter_or_a_buffer():
    model = load_model("tiny", CPU, max_seq_len=64).model
    stored = {tensor.data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    held = {
        value.data_ptr()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, torch.Tensor)
    }
    assert held <= stored
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert model.cos_table.shape == (64, 16)

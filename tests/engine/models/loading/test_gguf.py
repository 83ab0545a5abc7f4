"""Every supported tensor type, and whole GGUF models against ``transformers``."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter

from engine.errors import ModelError
from engine.models.loading.gguf import SUPPORTED_TYPES, GGUFFile
from engine.models.registry import load_model
from tests.engine.models.model_files import CPU, GGUF_SIZES, dense_logits, write_gguf

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import LlamaConfig, LlamaForCausalLM

IDS = [5, 17, 300, 44, 2, 0, 199, 63, 80, 81, 7, 250] * 4
HF_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def equivalent_model(dense: dict[str, np.ndarray], **rope: float) -> LlamaForCausalLM:
    """The same weights in transformers, whose query and key rows are in another order."""
    sizes, state = GGUF_SIZES, {}
    for name, values in dense.items():
        parts = name.split(".")
        if parts[0] != "blk":
            state[f"{HF_NAMES[parts[0]]}.weight"] = torch.from_numpy(values.copy())
            continue
        if parts[2] in ("attn_q", "attn_k"):
            heads = sizes["heads" if parts[2] == "attn_q" else "kv_heads"]
            size = values.shape[0] // heads
            # Row r of a head holds dimension r // 2 of the first half (r even) or of the second (r odd).
            order = [
                head * size + (r % (size // 2)) * 2 + r // (size // 2) for head in range(heads) for r in range(size)
            ]
            rows = values[order]
        else:
            rows = values.copy()
        state[f"model.layers.{parts[1]}.{HF_NAMES[parts[2]]}.weight"] = torch.from_numpy(rows)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=sizes["hidden"],
        intermediate_size=sizes["width"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["kv_heads"],
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "linear" if rope else "default", "rope_theta": 1e4} | rope,
    )
    model = LlamaForCausalLM(config).eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    return model


@pytest.mark.parametrize("type_name", SUPPORTED_TYPES)
def test_every_type_gives_the_logits_of_transformers(type_name: str, tmp_path: Path):
    path = tmp_path / "small.gguf"
    dense = write_gguf(path, GGMLQuantizationType[type_name])
    model = equivalent_model(dense)
    with torch.inference_mode():
        expected = model(torch.tensor([IDS])).logits[0]
    assert float(expected.std()) > 0.05
    got = dense_logits(load_model(str(path), CPU, max_seq_len=128).model, IDS)
    torch.testing.assert_close(got, expected, atol=5e-4, rtol=1e-4)  # float32 against float64: 2e-4 to 4e-4


def test_linear_rope_scaling_of_the_file_is_applied(tmp_path: Path):
    path = tmp_path / "small.gguf"
    dense = write_gguf(
        path, GGMLQuantizationType.F32, llama__rope__scaling__type="linear", llama__rope__scaling__factor=4.0
    )
    with torch.inference_mode():
        expected = equivalent_model(dense, factor=4.0)(torch.tensor([IDS])).logits[0]
    got = dense_logits(load_model(str(path), CPU, max_seq_len=128).model, IDS)
    torch.testing.assert_close(got, expected, atol=2e-4, rtol=1e-4)


def test_an_unsupported_tensor_type_is_named(tmp_path: Path):
    path = tmp_path / "ternary.gguf"
    write_gguf(path, GGMLQuantizationType.TQ1_0)
    with pytest.raises(
        ModelError, match=r"tensor 'token_embd.weight' has type TQ1_0; supported are F32, F16, BF16, Q4"
    ):
        load_model(str(path), CPU)


def test_an_unsupported_architecture_is_named(tmp_path: Path):
    path = tmp_path / "mamba.gguf"
    write_gguf(path, GGMLQuantizationType.F32, architecture="mamba")
    with pytest.raises(ModelError, match=r"mamba\.gguf: general\.architecture must be 'llama', got 'mamba'"):
        load_model(str(path), CPU)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"llama__expert_count": 8}, r"odd\.gguf: llama.expert_count must be 0 \(nothing else is supported\), got 8"),
        (
            {"llama__attention__sliding_window": 64},
            r"llama.attention.sliding_window must be 0 \(nothing else is supported\), got 64",
        ),
        ({"llama__rope__scaling__type": "yarn"}, r"llama.rope.scaling.type must be 'none' or 'linear', got 'yarn'"),
        (
            {"llama__rope__dimension_count": 32},
            r"llama.rope.dimension_count must be the head size, 64 \(nothing else is supported\), got 32",
        ),
        ({"llama__block_count": None}, r"odd\.gguf: the key 'llama.block_count' is missing"),
        ({"llama__attention__head_count_kv": 3}, r"num_heads must be a multiple of num_kv_heads"),
        (
            {"llama__attention__layer_norm_rms_epsilon": "small"},
            r"layer_norm_rms_epsilon must be a finite number in \[0, 1\], got 'small'",
        ),
        ({"llama__rope__freq_base": 0.0}, r"llama.rope.freq_base must be a finite number in \(0, inf\), got 0.0"),
        ({"llama__rope__freq_base": float("nan")}, r"llama.rope.freq_base must be a finite .*, got nan"),
        ({"llama__rope__scaling__type": 3}, r"llama.rope.scaling.type must be text, got 3"),
        ({"llama__rope__scaling__factor": -2.0}, r"llama.rope.scaling.factor must be a finite .*, got -2.0"),
        ({"llama__embedding_length": 255}, r"embedding_length must be a multiple of llama.attention.head_count=4, got"),
        ({"llama__context_length": True}, r"llama.context_length must be an integer of at least 1, got True"),
        ({"llama__attention__head_count": [4, 4]}, r"head_count must be an integer of at least 1, got \[4, 4\]"),
        ({"llama__block_count": 2**31}, r"llama.block_count must be at most 4096, got 2147483648"),
        ({"tokenizer__ggml__tokens": 5}, r"tokenizer.ggml.tokens must be a list of texts, got 5"),
        ({"tokenizer__ggml__tokens": [1, 2]}, r"tokenizer.ggml.tokens\[0\] must be text, got 1"),
        ({"tokenizer__ggml__tokens": ["a"] * 321}, r"must hold 1 to 320 texts, the rows of token_embd.weight, got 321"),
        ({"tokenizer__ggml__token_type": [1]}, r"tokenizer.ggml.token_type must hold 320 integers, got 1"),
        ({"tokenizer__ggml__merges": ["ab"]}, r"merges\[0\] must be two texts with a space between, got 'ab'"),
        ({"tokenizer__ggml__eos_token_id": 320}, r"eos_token_id must be an integer from 0 to 319, got 320"),
        ({"tokenizer__ggml__add_bos_token": "no"}, r"tokenizer.ggml.add_bos_token must be True or False, got 'no'"),
        ({"tokenizer__chat_template": 7}, r"tokenizer.chat_template must be text, got 7"),
        ({"tokenizer__chat_template": "{% if"}, r"tokenizer.chat_template must be a jinja2 template, got '{% if'"),
        ({"llama__block_count": 0}, r"llama.block_count must be an integer of at least 1, got 0"),
        ({"llama__block_count": 3}, r"odd\.gguf: the tensor 'blk.2.attn_norm.weight' is missing"),
        (
            {"llama__feed_forward_length": 512},
            r"'blk.0.ffn_gate.weight' must have shape \(512, 256\), got \(256, 256\)",
        ),
        (
            {"tokenizer__ggml__model": "bert"},
            r"tokenizer model 'bert' is not supported; supported are 'gpt2' and 'llama'",
        ),
        ({"tokenizer__ggml__pre": "odd"}, r"pre-tokenizer 'odd' is not supported; supported are 'gpt-2', 'smollm'"),
    ],
)
def test_what_the_engine_cannot_run_is_named(changes: dict, message: str, tmp_path: Path):
    path = tmp_path / "odd.gguf"
    write_gguf(path, GGMLQuantizationType.F32, **changes)
    with pytest.raises(ModelError, match=message):
        load_model(str(path), CPU)


def test_a_file_cut_short_after_it_was_indexed_is_named(tmp_path: Path):
    path = tmp_path / "small.gguf"
    write_gguf(path, GGMLQuantizationType.Q4_1)
    file = GGUFFile(path)
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(ModelError, match=r"small\.gguf: the file ends inside tensor 'token_embd.weight'; download it"):
        dict(file.weights(torch.float32))


def test_a_weight_that_is_no_number_is_named_and_no_copy_of_it_is_kept(tmp_path: Path):
    path = tmp_path / "small.gguf"
    write_gguf(path, GGMLQuantizationType.F32)
    tensor = GGUFFile(path)._tensor("blk.1.ffn_up.weight")
    with path.open("r+b") as file:
        file.seek(tensor.offset + 4 * 256)
        file.write(np.float32(np.inf).tobytes())
    for _ in range(2):
        with pytest.raises(
            ModelError, match=r"small\.gguf: tensor 'blk.1.ffn_up.weight' must hold .* got inf at \[1, 0"
        ):
            load_model(str(path), CPU)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_matrix_of_several_slices_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "small.gguf"
    dense = write_gguf(path, GGMLQuantizationType.Q6_K)
    monkeypatch.setattr("engine.models.loading.gguf._SLICE_ELEMENTS", 768)
    weights = dict(GGUFFile(path).weights(torch.float32))
    np.testing.assert_array_equal(weights["embedding.weight"].numpy(), dense["token_embd.weight"])


def test_a_separate_head_and_rope_factors_are_read(tmp_path: Path):
    path = tmp_path / "extra.gguf"
    write_gguf(path, GGMLQuantizationType.F32)
    plain = GGUFFile(path)
    assert plain.config.tie_word_embeddings
    assert plain.config.rope.explicit_factors == ()
    writer = GGUFWriter(path, "llama")
    for key, value in plain._given._values.items():
        if key.startswith("llama.") and isinstance(value, int):
            writer.add_uint32(key, value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tensor("token_embd.weight", np.zeros((320, 256), np.float32))
    writer.add_tensor("output.weight", np.zeros((320, 256), np.float32))
    writer.add_tensor("rope_freqs.weight", np.arange(1, 33, dtype=np.float32))
    for write in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        write()
    config = GGUFFile(path).config
    assert not config.tie_word_embeddings
    assert config.rope.explicit_factors == tuple(float(i) for i in range(1, 33))

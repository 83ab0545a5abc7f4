import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from engine.errors import ModelError
from engine.models.config import RopeScalingKind
from engine.models.loading.huggingface import parse_config, read_folder, read_tokenizer
from engine.models.loading.tokenizer import BPETokenizer
from tests.engine.models.model_files import CORPUS, small_tokenizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers import PreTrainedTokenizerFast

SMALL: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}


def write(folder: Path, **files: Any) -> Path:
    for name, values in files.items():
        (folder / f"{name}.json").write_text(values if isinstance(values, str) else json.dumps(values))
    return folder


def test_an_older_config_is_read_like_a_new_one():
    old = parse_config(SMALL | {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})
    new = parse_config(SMALL | {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}})
    assert old == new
    assert old.rope.kind is RopeScalingKind.LINEAR
    assert (old.num_kv_heads, old.head_size) == (4, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "model_type must be one of llama, qwen2, qwen3, got 'mamba'"),
        ({"model_type": ["llama"]}, r"model_type must be one of llama, qwen2, qwen3, got \['llama'\]"),
        ({"vocab_size": None}, "the key 'vocab_size' is missing"),
        ({"hidden_size": "64"}, "hidden_size must be an integer of at least 1, got '64'"),
        (
            {"hidden_size": 66},
            "hidden_size must be a multiple of num_attention_heads=4 where head_dim is not given, got 6",
        ),
        ({"num_attention_heads": 0}, "num_attention_heads must be an integer of at least 1, got 0"),
        ({"num_key_value_heads": 0}, "num_key_value_heads must be an integer of at least 1, got 0"),
        ({"num_key_value_heads": 3}, "num_heads must be a multiple of num_kv_heads"),
        ({"head_dim": -16}, "head_dim must be an integer of at least 1, got -16"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 4096, got 1000000000"),
        ({"vocab_size": 10**12}, "vocab_size must be at most 4194304, got 1000000000000"),
        ({"rms_norm_eps": "1e-5"}, r"rms_norm_eps must be a finite number in \[0, 1\], got '1e-5'"),
        ({"rms_norm_eps": float("nan")}, r"rms_norm_eps must be a finite number in \[0, 1\], got nan"),
        ({"rope_theta": 0}, r"rope_theta must be a finite number in \(0, inf\), got 0"),
        ({"rope_theta": -1e4}, r"rope_theta must be a finite number in \(0, inf\), got -10000.0"),
        ({"rope_theta": float("inf")}, r"rope_theta must be a finite number in \(0, inf\), got inf"),
        ({"rope_scaling": "linear"}, "rope_scaling must be an object, got 'linear'"),
        ({"rope_scaling": {"rope_type": ["linear"]}}, r"rope_scaling.rope_type must be text, got \['linear'\]"),
        (
            {"rope_scaling": {"type": "linear", "factor": 0}},
            r"rope_scaling.factor must be a finite number in \(0, inf\), got 0",
        ),
        (
            {"rope_parameters": {"rope_type": "llama3", "low_freq_factor": 4.0}},
            "rope high_freq_factor must be above low_freq_factor=4.0, got 4.0",
        ),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings must be True or False, got 'false'"),
        ({"layer_types": "full_attention"}, "layer_types must be a list of texts, got 'full_attention'"),
        ({"layer_types": [{}]}, r"layer_types\[0\] must be text, got {}"),
        ({"hidden_act": 5}, "hidden_act must be text, got 5"),
        ({"max_position_embeddings": 2.5}, "max_position_embeddings must be an integer of at least 1, got 2.5"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64}, "sliding-window attention is not"),
        ({"sliding_window": 64}, "sliding-window attention is not supported"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window attention is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is not supported"),
        (
            {"rope_scaling": {"rope_type": "yarn"}},
            "rope scaling 'yarn' is not supported; supported are default, linear",
        ),
    ],
)
def test_what_the_engine_would_compute_differently_is_refused_by_name(changes: dict, message: str):
    with pytest.raises(ModelError, match=message):
        parse_config(SMALL | changes)


def test_a_window_that_is_switched_off_is_no_window():
    config = parse_config(SMALL | {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 64})
    assert config.features.qkv_bias
    assert not config.features.output_bias


def test_an_empty_folder_is_named(tmp_path: Path):
    with pytest.raises(ModelError, match=r"is empty; a model folder holds config.json, safetensors weights and token"):
        read_folder(tmp_path, torch.float32)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("tokenizer.json",), "lacks config.json"),
        (("config.json",), "lacks tokenizer.json"),
        (("config.json", "tokenizer.json"), r"lacks the weights model.safetensors; .*model.safetensors.index.json"),
        (("small.gguf",), r"lacks config.json; it holds small.gguf: pass the path of that file"),
    ],
)
def test_a_folder_with_a_part_missing_names_the_part(files: tuple[str, ...], message: str, tmp_path: Path):
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(ModelError, match=message):
        read_folder(tmp_path, torch.float32)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config", "{not json", r"config\.json cannot be read as JSON: Expecting property name"),
        ("config", "[1]", r"config\.json must hold a JSON object, got list"),
        ("config", {"model_type": "t5"}, r"config\.json: model_type must be one of llama, .*, got 't5'"),
        ("tokenizer", "\x00", r"tokenizer\.json cannot be read as JSON"),
        ("config", '{"a": ' + "[" * 99_999, r"config\.json cannot be read as JSON: it is nested too deeply"),
        ("config", '{"a": ' + "9" * 5000 + "}", r"config\.json cannot be read as JSON: Exceeds the limit"),
        ("config", " " * (1 << 24) + "{}", r"config\.json must have at most 16.0 MiB, got 16.0 MiB"),
        ("tokenizer", "[]", r"tokenizer\.json must hold a JSON object, got list"),
        (
            "tokenizer",
            {"added_tokens": [{"id": 3}]},
            r"tokenizer\.json: the key 'added_tokens\[0\].content' is missing",
        ),
        (
            "tokenizer",
            {"added_tokens": {"a": 3}},
            r"tokenizer\.json: added_tokens must be a list of objects, got {'a': 3}",
        ),
        (
            "tokenizer",
            {"added_tokens": [{"id": "3"}]},
            r"added_tokens\[0\].id must be an integer of at least 0, got '3'",
        ),
        ("tokenizer", {"post_processor": []}, r"tokenizer\.json: post_processor must be an object, got \[\]"),
        (
            "tokenizer",
            {"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]}},
            r"tokenizer\.json: post_processor.special_tokens.x.ids must be a list of at least one token id, got None",
        ),
        ("tokenizer_config", "nope", r"tokenizer_config\.json cannot be read as JSON"),
        ("tokenizer_config", {"add_bos_token": "yes"}, r"config\.json: add_bos_token must be True or False, got 'yes'"),
        ("tokenizer_config", {"eos_token": 5}, r"tokenizer_config\.json: eos_token must be an object, got 5"),
        ("tokenizer_config", {"chat_template": 5}, r"chat_template must be text, or a list of objects with name and"),
        (
            "tokenizer_config",
            {"chat_template": ["x"]},
            r"tokenizer_config\.json: chat_template\[0\] must be an object, got 'x'",
        ),
        (
            "tokenizer_config",
            {"chat_template": "{% for m in messages %}\n{{ m.role }"},
            r"tokenizer_config\.json: chat_template must be a jinja2 template, got '{% for .*\(.*, line 2\)",
        ),
        (
            "generation_config",
            {"eos_token_id": 320},
            r"generation_config\.json: eos_token_id must be .* 0 to 319, got 320",
        ),
        ("generation_config", {"eos_token_id": [1, "2"]}, r"generation_config\.json: eos_token_id must be .*, got '2'"),
        ("generation_config", {"eos_token_id": -1}, r"generation_config\.json: eos_token_id must be .*, got -1"),
        (
            "config",
            SMALL | {"eos_token_id": 10**9},
            r"/config\.json: eos_token_id must be an .* 0 to 319, got 1000000000",
        ),
    ],
)
def test_an_invalid_file_is_named(name: str, content: Any, message: str, tmp_path: Path):
    write(tmp_path, **({"config": SMALL, "tokenizer": {}} | {name: content}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=message):
        read_folder(tmp_path, torch.float32)


def test_special_tokens_come_from_whoever_names_them(tmp_path: Path):
    small_tokenizer().save(str(tmp_path / "tokenizer.json"))
    settings = {"bos_token": {"content": "<|bos|>"}, "eos_token": "<|eos|>", "chat_template": "{{ messages }}"}
    write(tmp_path, tokenizer_config=settings)
    special = read_tokenizer(tmp_path, {}).special
    assert (special.bos_token_id, special.eos_token_ids, special.add_bos) == (0, {1}, False)
    assert special.control_ids == {0, 1}
    assert special.chat_template == "{{ messages }}"
    assert read_tokenizer(tmp_path, {"eos_token_id": 7}).special.eos_token_ids == {7}
    write(tmp_path, generation_config={"eos_token_id": [1, 5]})
    assert read_tokenizer(tmp_path, {"eos_token_id": 7}).special.eos_token_ids == {1, 5}


def test_the_template_file_and_the_default_of_several_win(tmp_path: Path):
    small_tokenizer().save(str(tmp_path / "tokenizer.json"))
    several = [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]
    write(tmp_path, tokenizer_config={"chat_template": several})
    assert read_tokenizer(tmp_path, {}).special.chat_template == "D"
    (tmp_path / "chat_template.jinja").write_text("J")
    assert read_tokenizer(tmp_path, {}).special.chat_template == "J"


@pytest.mark.parametrize("adds_bos", [False, True])
def test_ids_equal_those_of_transformers_with_and_without_bos(adds_bos: bool, tmp_path: Path):
    tokenizer = small_tokenizer()
    if adds_bos:
        tokenizer.post_processor = TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, tokenizer_config={"bos_token": "<|bos|>"})
    reference = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ours = BPETokenizer(read_tokenizer(tmp_path, {}), vocab_size=330)
    for text in [*CORPUS, "<|eos|> after <|bos|>", " \n\n x", "été 1234"]:
        ids = ours.encode(text)
        assert ids == reference(text)["input_ids"]
        assert ours.decode(ids) == reference.decode(ids, clean_up_tokenization_spaces=False)
    assert ours.vocab_size == 330
    assert ours.decode([329]) == ""

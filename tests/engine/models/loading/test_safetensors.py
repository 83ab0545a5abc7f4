import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import ModelError
from engine.models.loading.layout import weight_parts, weight_shapes
from engine.models.loading.safetensors import _file_name, read_safetensors, weight_files
from engine.models.tiny import TINY_CONFIG


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generator = torch.Generator().manual_seed(0)
    parts = [part for parts in weight_parts(TINY_CONFIG).values() for part in parts]
    save_file(
        {_file_name(name): torch.randn(shape, generator=generator) for name, shape in parts},
        tmp_path / "model.safetensors",
    )
    return tmp_path


def change(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(name)
    save_file(tensors if tensor is None else tensors | {name: tensor}, folder / "model.safetensors")


def test_weights_come_joined_and_in_the_wanted_type(folder: Path):
    weights = read_safetensors(folder, TINY_CONFIG, torch.bfloat16)
    assert {name: tuple(w.shape) for name, w in weights.items()} == weight_shapes(TINY_CONFIG)
    stored = load_file(folder / "model.safetensors")
    query, key, value = (stored[f"model.layers.1.self_attn.{x}_proj.weight"] for x in "qkv")
    assert torch.equal(weights["layers.1.qkv.weight"], torch.cat((query, key, value)).bfloat16())


def test_a_missing_tensor_is_named_with_its_shape(folder: Path):
    change(folder, "model.layers.1.mlp.up_proj.weight", None)
    with pytest.raises(ModelError, match=r"lacks the tensor 'model.layers.1.mlp.up_proj.weight' of shape \(128, 64\)"):
        read_safetensors(folder, TINY_CONFIG, torch.float32)


def test_a_misshapen_tensor_is_named_with_both_shapes(folder: Path):
    change(folder, "model.layers.2.self_attn.k_proj.weight", torch.zeros(16, 64))
    message = (
        r"'model.layers.2.self_attn.k_proj.weight' must have shape \(32, 64\) according to config.json, got \(16, 64\)"
    )
    with pytest.raises(ModelError, match=message):
        read_safetensors(folder, TINY_CONFIG, torch.float32)


def test_an_integer_tensor_is_refused_by_type(folder: Path):
    change(folder, "model.norm.weight", torch.zeros(64, dtype=torch.int8))
    with pytest.raises(ModelError, match=r"'model.norm.weight' has type I8; supported are F32, BF16"):
        read_safetensors(folder, TINY_CONFIG, torch.float32)


def test_a_weight_that_is_no_number_is_named_as_the_file_names_it(folder: Path):
    weights = torch.zeros(64, 64)
    weights[1, 5] = float("nan")
    change(folder, "model.layers.1.self_attn.q_proj.weight", weights)
    with pytest.raises(
        ModelError, match=r"tensor 'model.layers.1.self_attn.q_proj.weight' must hold .* got nan at \[1"
    ):
        read_safetensors(folder, TINY_CONFIG, torch.float32)


def test_weights_larger_than_memory_are_refused_before_any_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("engine.models.loading.safetensors.free_memory", lambda spec: 1 << 18)
    with pytest.raises(
        ModelError, match=r"the weights take 576768 bytes of memory as float32, and 262144 bytes are fr"
    ):
        read_safetensors(folder, TINY_CONFIG, torch.float32)


@pytest.mark.parametrize("kept", [0, 4, 2000, -1])
def test_a_truncated_file_is_named(kept: int, folder: Path):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(
        ModelError, match=r"model\.safetensors is not a readable safetensors file \(.*download it again"
    ):
        read_safetensors(folder, TINY_CONFIG, torch.float32)


def test_a_file_of_something_else_is_named(folder: Path):
    (folder / "model.safetensors").write_bytes(b"<html>not found</html>" * 50)
    with pytest.raises(ModelError, match=r"is not a readable safetensors file"):
        read_safetensors(folder, TINY_CONFIG, torch.float32)


def test_shards_are_listed_in_order_and_a_missing_one_is_named(folder: Path):
    index = {"weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors", "c": "model-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-1.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"lacks the weights model-2\.safetensors"):
        weight_files(folder)
    (folder / "model-2.safetensors").write_bytes(b"")
    assert [path.name for path in weight_files(folder)] == ["model-1.safetensors", "model-2.safetensors"]


def test_an_index_without_a_map_is_named(folder: Path):
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(
        ModelError, match=r"index\.json: weight_map must be an object that gives the file of each tensor, got None"
    ):
        weight_files(folder)

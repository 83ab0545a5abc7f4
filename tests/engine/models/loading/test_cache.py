from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.models.loading import cache
from engine.models.loading.tokenizer import SavedTokenizer
from engine.models.tiny import TINY_CONFIG, tiny_weights
from engine.models.tokenizer import SpecialTokens

TOKENIZER = SavedTokenizer(
    '{"a": "naïve"}',
    SpecialTokens(eos_token_ids=frozenset({2, 7}), bos_token_id=1, add_bos=True, control_ids=frozenset({1, 2})),
)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


def store(source: Path, dtype: torch.dtype = torch.float32) -> Path:
    path = cache.converted_path(source, dtype)
    weights = ((name, tensor.to(dtype)) for name, tensor in tiny_weights(0).items())
    assert cache.store_converted(path, TINY_CONFIG, TOKENIZER, weights, dtype=dtype)
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_stored_comes_back(dtype: torch.dtype, source: Path):
    converted = cache.load_converted(store(source, dtype))
    assert converted is not None
    assert converted.config == TINY_CONFIG
    assert converted.tokenizer == TOKENIZER
    expected = {name: tensor.to(dtype) for name, tensor in tiny_weights(0).items()}
    assert converted.weights.keys() == expected.keys()
    assert all(torch.equal(converted.weights[name], expected[name]) for name in expected)


def test_the_file_is_plain_safetensors_on_page_boundaries(source: Path):
    path = store(source)
    assert torch.equal(load_file(path)["embedding.weight"], tiny_weights(0)["embedding.weight"])
    assert (8 + int.from_bytes(path.read_bytes()[:8], "little")) % 4096 == 0


@pytest.mark.parametrize("place", [0, 9, 5000, -1])
def test_one_damaged_byte_makes_the_file_count_as_absent(place: int, source: Path):
    path = store(source)
    data = bytearray(path.read_bytes())
    data[place] ^= 0x55
    path.write_bytes(data)
    assert cache.load_converted(path) is None


@pytest.mark.parametrize("kept", [0, 4, 3000, -1])
def test_a_truncated_file_counts_as_absent(kept: int, source: Path):
    path = store(source)
    path.write_bytes(path.read_bytes()[:kept])
    assert cache.load_converted(path) is None


def test_an_absent_file_is_none(source: Path):
    assert cache.load_converted(cache.converted_path(source, torch.float32)) is None


def test_a_changed_source_gets_a_new_file_and_the_old_one_goes(source: Path):
    old, other_dtype = store(source), store(source, torch.bfloat16)
    source.write_bytes(b"other weights")
    new = store(source)
    assert new != old
    assert not old.exists()
    assert new.exists()
    assert other_dtype.exists()


def test_a_failure_while_writing_leaves_nothing_behind(source: Path):
    path = cache.converted_path(source, torch.float32)

    def fail():
        yield "embedding.weight", tiny_weights(0)["embedding.weight"]
        raise OSError(28, "No space left on device")

    assert not cache.store_converted(path, TINY_CONFIG, TOKENIZER, fail(), dtype=torch.float32)
    assert list(path.parent.iterdir()) == []


def test_an_interruption_while_writing_leaves_nothing_behind(source: Path):
    path = cache.converted_path(source, torch.float32)

    def interrupt():
        yield "embedding.weight", tiny_weights(0)["embedding.weight"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.store_converted(path, TINY_CONFIG, TOKENIZER, interrupt(), dtype=torch.float32)
    assert list(path.parent.iterdir()) == []


def test_a_nearly_full_disk_is_left_alone(source: Path, monkeypatch: pytest.MonkeyPatch):
    path = cache.converted_path(source, torch.float32)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000})())
    weights = iter(tiny_weights(0).items())
    assert not cache.store_converted(path, TINY_CONFIG, TOKENIZER, weights, dtype=torch.float32)
    assert next(weights)[0] == "embedding.weight"

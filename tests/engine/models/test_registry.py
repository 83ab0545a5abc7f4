import os
import sys
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType

from engine.errors import ModelError
from engine.models.catalog import PUBLISHED
from engine.models.loading import cache
from engine.models.loading.tokenizer import BPETokenizer
from engine.models.registry import load_model
from tests.engine.models.model_files import CPU, dense_logits, write_gguf


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm2", r"no model 'smollm2'; did you mean 'smollm2-135m'\? A model is a name \(tiny, smollm2-135m\)"),
        ("Tinny", r"no model 'Tinny'; did you mean 'tiny'\?"),
        ("qqqqq", r"no model 'qqqqq'; did you mean 'tiny' or 'smollm2-135m'\?"),
        ("", r"no model ''; did you mean 'tiny' or 'smollm2-135m'\?"),
        ("models/x.gguf", r"no file or folder 'models/x.gguf'; .*a \.gguf file, or a Hugging Face folder"),
        ("x.gguf", r"no file or folder 'x.gguf'"),
    ],
)
def test_an_unknown_name_is_met_with_the_nearest_and_the_accepted_forms(name: str, message: str):
    with pytest.raises(ModelError, match=message):
        load_model(name, CPU)


def test_a_published_model_that_is_not_here_says_how_to_get_it():
    with pytest.raises(ModelError, match=r"get it with `stepscope models pull smollm2-135m`, or use 'tiny'"):
        load_model("smollm2-135m", CPU)


def test_a_sequence_longer_than_the_model_was_made_for_is_refused():
    with pytest.raises(
        ModelError, match=r"max_seq_len must be at most 8192, .* got 9000; set EngineConfig\(max_seq_len"
    ):
        load_model("tiny", CPU, max_seq_len=9000)


def test_no_maximum_means_the_model_s_own():
    assert load_model("tiny", CPU).model.cos_table.shape[0] == 8192


def test_the_second_load_comes_from_the_converted_copy_and_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "small.gguf"
    write_gguf(path, GGMLQuantizationType.Q4_0)
    first = load_model(str(path), CPU)
    monkeypatch.setattr("engine.models.registry.GGUFFile", None)
    monkeypatch.setitem(sys.modules, "gguf", None)  # importing it would fail
    second = load_model(str(path), CPU)
    assert first.weight_hash == second.weight_hash
    assert first.config == second.config
    text = "The capital of France"
    assert first.tokenizer.encode(text) == second.tokenizer.encode(text)
    assert first.tokenizer.eos_token_ids == second.tokenizer.eos_token_ids == {1}
    ids = first.tokenizer.encode(text)
    assert dense_logits(first.model, ids).equal(dense_logits(second.model, ids))


def test_without_a_writable_cache_the_model_loads_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "small.gguf"
    write_gguf(path, GGMLQuantizationType.Q8_0)
    cached = load_model(str(path), CPU)
    monkeypatch.setattr(cache, "load_converted", lambda path: None)
    (tmp_path / "cache").rename(tmp_path / "old")
    (tmp_path / "cache").write_text("a file where a directory should be")
    plain = load_model(str(path), CPU)
    assert dense_logits(plain.model, [5, 6, 7]).equal(dense_logits(cached.model, [5, 6, 7]))


def test_the_hash_follows_the_weights_and_not_the_place(tmp_path: Path):
    paths = [tmp_path / name for name in ("a.gguf", "b.gguf", "c.gguf")]
    for path, seed in zip(paths, (0, 0, 1), strict=True):
        write_gguf(path, GGMLQuantizationType.Q4_0, seed=seed)
    first, same, other = (load_model(str(path), CPU).weight_hash for path in paths)
    assert first == same != other
    assert len(first) == 16


def test_a_file_that_may_not_be_read_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "small.gguf"
    write_gguf(path, GGMLQuantizationType.Q4_0)

    def refuse(path: Path, dtype: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("engine.models.registry.converted_path", refuse)
    with pytest.raises(ModelError, match=r"small\.gguf cannot be read: .*Permission denied"):
        load_model(str(path), CPU)


def test_a_model_made_elsewhere_is_served_as_it_is():
    made = load_model("tiny", CPU, max_seq_len=64)
    assert load_model(made, CPU, max_seq_len=64) is made
    with pytest.raises(ModelError, match=r"'tiny' must lie on cpu in torch.float32 with 65 positions, got .* and 64"):
        load_model(made, CPU, max_seq_len=65)


def test_half_a_pulled_file_is_told_from_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ModelError, match="model 'smollm2-135m' is not on this machine yet; get it with `stepscope mod"):
        load_model("smollm2-135m", CPU)
    path = PUBLISHED["smollm2-135m"].path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    with pytest.raises(
        ModelError, match=r"is not whole: .*\.gguf has 4 of 98362432 bytes; get it with `stepscope models"
    ):
        load_model("smollm2-135m", CPU)


def test_a_closed_folder_on_the_way_is_told_from_a_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def closed(path: Path, **_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", closed)
    with pytest.raises(
        ModelError, match=r"x/small\.gguf' cannot be read: Permission denied \(a folder on the way is clo"
    ):
        load_model("x/small.gguf", CPU)


def test_what_is_neither_file_nor_folder_is_named_instead_of_waited_for(tmp_path: Path):
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    with pytest.raises(ModelError, match=r"pipe\.gguf is neither a file nor a folder; a model is a \.gguf file or"):
        load_model(str(pipe), CPU)


def test_a_slash_at_the_end_changes_nothing(tmp_path: Path):
    write_gguf(tmp_path / "small.gguf", GGMLQuantizationType.Q4_0)
    assert load_model(f"{tmp_path}/small.gguf/", CPU).config == load_model(f"{tmp_path}/small.gguf", CPU).config


def test_a_name_of_megabytes_is_quoted_in_short():
    with pytest.raises(ModelError, match=r"^no model 'x+\.\.\.x+'; did you mean") as refused:
        load_model("x" * 10**6, CPU)
    assert len(str(refused.value)) < 400


def test_more_tokens_than_embedding_rows_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "small.gguf"
    write_gguf(path, GGMLQuantizationType.F32)
    monkeypatch.setattr("engine.models.registry.BPETokenizer", lambda saved, size: BPETokenizer(saved, 10))
    with pytest.raises(
        ModelError, match=r"small\.gguf: the tokenizer has token id 319, but the model's embedding has onl"
    ):
        load_model(str(path), CPU)

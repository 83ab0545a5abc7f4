from pathlib import Path

import pytest

from engine.errors import ModelError
from engine.models.catalog import PUBLISHED, cache_dir, model_names


def test_the_cache_follows_xdg_and_ignores_a_relative_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/else")
    assert cache_dir() == Path("/somewhere/else/stepscope")
    for unusable in ("", "relative/dir"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert cache_dir() == tmp_path / ".cache/stepscope"


def test_names_are_unique_and_each_published_model_has_its_digests():
    assert len(set(model_names())) == len(model_names()) == 1 + len(PUBLISHED)
    for name, model in PUBLISHED.items():
        assert model.name == name
        assert len(model.wheel_sha256) == len(model.file_sha256) == 64
        assert model.requirement == f"{model.package}=={model.version}"


def test_a_model_counts_as_pulled_only_in_full_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = PUBLISHED["smollm2-135m"]
    assert not model.is_pulled
    model.path.parent.mkdir(parents=True)
    model.path.write_bytes(b"half of it")
    assert not model.is_pulled
    with model.path.open("wb") as file:
        file.truncate(model.num_bytes)
    assert model.is_pulled


def refuse_access(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", closed)
    monkeypatch.setattr(Path, "is_file", closed)


def test_a_closed_cache_directory_is_named_with_the_override(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    refuse_access(monkeypatch)
    message = (
        r"stepscope/models/smollm2-135m/.*gguf cannot be looked at: Permission denied; set XDG_CACHE_HOME to a dir"
    )
    with pytest.raises(ModelError, match=message):
        _ = PUBLISHED["smollm2-135m"].is_pulled


def test_without_a_home_the_override_is_named(monkeypatch: pytest.MonkeyPatch):
    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(
        ModelError, match="there is no home directory to keep models in; set XDG_CACHE_HOME to a directory"
    ):
        cache_dir()

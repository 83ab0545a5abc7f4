import json

from engine.models.loading import pull
from lab.cli.main import main


def test_models_are_listed_with_where_they_lie(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["models", "list", "--json"]) == 0
    tiny, smollm2 = json.loads(capsys.readouterr().out)
    assert (tiny["name"], tiny["is_ready"]) == ("tiny", True)
    assert (smollm2["name"], smollm2["is_ready"]) == ("smollm2-135m", False)
    assert smollm2["path"].startswith(str(tmp_path))


def test_the_plain_list_says_how_to_get_what_is_missing(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert "tiny" in out
    assert "[stepscope models pull smollm2-135m]" in out


def test_pull_shows_progress_and_prints_the_path(capsys, monkeypatch, tmp_path):
    def fake(name, *, progress):
        progress("download", 50, 100)
        progress("download", 100, 100)
        return tmp_path / name

    monkeypatch.setattr(pull, "pull_model", fake)
    assert main(["models", "pull", "smollm2-135m"]) == 0
    captured = capsys.readouterr()
    assert captured.out.strip() == str(tmp_path / "smollm2-135m")
    assert "download" in captured.err


def test_the_built_in_model_needs_no_pull(capsys):
    assert main(["models", "pull", "tiny"]) == 0
    assert "nothing to fetch" in capsys.readouterr().out


def test_an_unknown_name_cannot_be_pulled(capsys):
    assert main(["models", "pull", "gpt-5"]) == 2
    assert "no model 'gpt-5' can be pulled; there are 'smollm2-135m'" in capsys.readouterr().err

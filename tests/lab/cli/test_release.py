"""stepscope release."""

from lab.cli.main import main

COURSE = '[course]\nid = "testing"\nseed = "course seed"\n'


def test_a_problem_set_is_released_with_a_source_for_the_teacher(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "course.toml").write_text(COURSE, encoding="utf-8")
    (tmp_path / "seed.toml").write_text('seed = "a secret seed"\n', encoding="utf-8")
    options = ["--course", "course.toml", "--seed-file", "seed.toml", "--nbgrader-source", "mine"]
    assert main(["release", "ps3", "--out", "out", *options]) == 0
    out = capsys.readouterr().out
    assert "notebook: out/ps3/ps3.ipynb" in out
    assert "nothing in it gives an answer away" in out
    assert "with solutions, for you alone: mine/source/ps3/ps3.ipynb" in out
    assert main(["release", "ps3", "--out", "out", "--course", "course.toml"]) == 2
    assert "out is not empty" in capsys.readouterr().err

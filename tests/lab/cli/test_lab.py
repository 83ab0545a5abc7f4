import os
import sys

import pytest

from engine.errors import ConfigError
from lab.cli import lab
from lab.cli.main import main


@pytest.fixture
def root(tmp_path):
    (tmp_path / "walkthroughs").mkdir()
    (tmp_path / "walkthroughs" / "02_second.ipynb").write_text("{}")
    (tmp_path / "walkthroughs" / "01_first.ipynb").write_text("{}")
    (tmp_path / "walkthroughs" / "01_first_zh.ipynb").write_text("{}")
    (tmp_path / "walkthroughs" / "00_map.ipynb").write_text("{}")
    return tmp_path


def test_the_server_opens_walkthrough_one_rooted_in_the_checkout(root):
    command = lab.server_command(root, port=8899, no_browser=True, is_root=False)
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert "--LabApp.default_url=/lab/tree/walkthroughs/01_first.ipynb" in command
    assert f"--ServerApp.root_dir={root}" in command
    assert "--ServerApp.port=8899" in command
    assert "--no-browser" in command
    assert "--allow-root" not in command


def test_root_in_a_container_is_let_in(root):
    assert "--allow-root" in lab.server_command(root, port=1, no_browser=False, is_root=True)


def test_the_command_becomes_the_server(root, monkeypatch):
    started = []
    monkeypatch.setattr(lab, "checkout", lambda: root)
    monkeypatch.setattr(os, "execv", lambda path, command: started.append((path, command)))
    monkeypatch.chdir(root)
    main(["lab", "--no-browser", "--port", "8899"])
    [(path, command)] = started
    assert path == sys.executable
    assert "--ServerApp.port=8899" in command


def test_outside_a_checkout_the_error_says_where_the_walkthroughs_are(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "__file__", str(tmp_path / "site" / "lab" / "cli" / "lab.py"))
    with pytest.raises(ConfigError, match=r"lie in a checkout of the repository.*make lab"):
        lab.checkout()


def test_a_python_without_jupyterlab_says_how_to_get_it(root, monkeypatch, capsys):
    monkeypatch.setattr(lab, "checkout", lambda: root)
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: None)
    assert main(["lab"]) == 2
    assert "make setup" in capsys.readouterr().err

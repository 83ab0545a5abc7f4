"""stepscope sync-nbgrader."""

import sys

from lab.classroom import nbgrader_sync
from lab.cli import sync_nbgrader
from lab.cli.main import main

BOOK = '{"course": "testing", "entries": []}'


def test_a_file_becomes_a_database_url(tmp_path, monkeypatch, capsys):
    (tmp_path / "gradebook.json").write_text(BOOK, encoding="utf-8")
    seen = []
    monkeypatch.setattr(nbgrader_sync, "sync", lambda book, database: seen.append(database) or 3)
    assert main(["sync-nbgrader", str(tmp_path), "--db", "class.db"]) == 0
    assert main(["sync-nbgrader", str(tmp_path), "--db", "postgresql://x/y"]) == 0
    assert seen == ["sqlite:///class.db", "postgresql://x/y"]
    assert "written: 3 scores into sqlite:///class.db" in capsys.readouterr().out
    assert sync_nbgrader.__doc__


def test_without_nbgrader_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    (tmp_path / "gradebook.json").write_text(BOOK, encoding="utf-8")
    monkeypatch.setitem(sys.modules, "nbgrader", None)
    monkeypatch.setitem(sys.modules, "nbgrader.api", None)
    assert main(["sync-nbgrader", str(tmp_path)]) == 2
    assert "pip install -e '.[classroom]'" in capsys.readouterr().err

"""What the README shows works: its program runs (on the tiny model), and its commands exist."""

import re
import shlex

import pytest

from lab.cli.main import build_parser
from tests.house.gates import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\.venv/bin/stepscope (.+)$", README, re.MULTILINE)
TARGETS = re.findall(r"^make (\w+)", README, re.MULTILINE)


def test_the_program_in_the_readme_runs(tmp_path, monkeypatch, capsys):
    [program] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(program.replace("smollm2-135m", "tiny"), "README.md", "exec"), {})
    assert "Step 3" in capsys.readouterr().out
    assert (tmp_path / "mine.trace.json.gz").stat().st_size > 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_in_the_readme_is_understood(command):
    assert build_parser().parse_args(shlex.split(command)).run


@pytest.mark.parametrize("target", sorted(set(TARGETS)))
def test_a_make_target_in_the_readme_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_a_picture_in_the_readme_exists():
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / name).is_file(), name
    assert COMMANDS
    assert TARGETS

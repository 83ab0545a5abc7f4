"""The gates are not decoration: each fault, put into a copy of the checkout, turns `make check` red."""

import shutil
import subprocess
import sys

import pytest

from tests.house.gates import ROOT

LINT_IMPORTS = "from importlinter.cli import lint_imports_command as c; c()"
COPIED = ("engine", "lab", "tests/house", "pyproject.toml", ".importlinter", "ARCHITECTURE.md")


@pytest.fixture
def copy(tmp_path):
    """A copy of everything that the gates read."""
    for name in COPIED:
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return tmp_path


def _run(copy, *command):
    return subprocess.run([sys.executable, *command], cwd=copy, capture_output=True, text=True, check=False)


def _house(copy, name):
    return _run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/house/{name}.py")


def test_the_untouched_copy_is_green(copy):
    assert _run(copy, "-c", LINT_IMPORTS).returncode == 0
    assert _house(copy, "test_sizes").returncode == 0
    assert _house(copy, "test_tree").returncode == 0


def test_a_function_of_sixty_lines_is_red(copy):
    lines = "\n".join(f"    total += {i}" for i in range(58))
    with (copy / "engine/shapes.py").open("a", encoding="utf-8") as file:
        file.write(f'\n\ndef long(total: int) -> int:\n    """Add."""\n{lines}\n    return total\n')
    done = _house(copy, "test_sizes")
    assert done.returncode == 1
    assert "function long has 60 lines, at most 50" in done.stdout


def test_a_stray_utils_module_is_red_twice(copy):
    (copy / "engine/utils.py").write_text('"""Stray. Does not: belong here."""\n\nVALUE = 1\n', encoding="utf-8")
    done = _house(copy, "test_tree")
    assert done.returncode == 1
    assert "engine/utils.py" in done.stdout
    contracts = _run(copy, "-c", LINT_IMPORTS)
    assert contracts.returncode == 1
    assert "engine.utils" in contracts.stdout


def test_an_import_of_the_lab_in_the_engine_is_red(copy):
    with (copy / "engine/shapes.py").open("a", encoding="utf-8") as file:
        file.write("\nfrom lab import snapshot  # noqa: E402, F401\n")
    contracts = _run(copy, "-c", LINT_IMPORTS)
    assert contracts.returncode == 1
    assert "engine: complete without the lab BROKEN" in contracts.stdout


def test_torch_in_a_torch_free_module_is_red(copy):
    with (copy / "engine/errors.py").open("a", encoding="utf-8") as file:
        file.write("\nimport torch  # noqa: E402, F401\n")
    contracts = _run(copy, "-c", LINT_IMPORTS)
    assert contracts.returncode == 1
    assert "torch-free by contract, even through others BROKEN" in contracts.stdout


def test_six_positional_arguments_are_red(copy):
    with (copy / "engine/shapes.py").open("a", encoding="utf-8") as file:
        arguments = ", ".join(f"{name}: int" for name in "abcdef")
        file.write(f'\n\ndef wide({arguments}) -> int:\n    """Add."""\n    return a\n')
    done = _house(copy, "test_sizes")
    assert done.returncode == 1
    assert "function wide takes 6 positional arguments, at most 5" in done.stdout

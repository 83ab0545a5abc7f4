"""The image that a Binder builds from ``binder/``: what it installs and runs, and that it ends in a healthy doctor."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
BINDER = ROOT / "binder"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INDEX = "--extra-index-url"


def _lines(name):
    text = (BINDER / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


PINS = [Requirement(line) for line in _lines("requirements.txt") if not line.startswith(INDEX)]
WANTED = {canonicalize_name(Requirement(text).name): Requirement(text) for text in PROJECT["dependencies"]}


def _pinned(requirement):
    (clause,) = requirement.specifier
    assert clause.operator == "==", f"{requirement} is no pin"
    return Version(clause.version)


def test_every_dependency_of_the_project_is_pinned_once_and_nothing_else_is():
    assert sorted(canonicalize_name(pin.name) for pin in PINS) == sorted(WANTED)


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.name)
def test_a_pin_is_a_version_that_the_project_accepts(pin):
    wanted = WANTED[canonicalize_name(pin.name)]
    assert wanted.specifier.contains(_pinned(pin), prereleases=True), f"{pin} does not fit {wanted}"


def test_torch_comes_from_its_own_index_in_the_build_for_cpus():
    (index,) = [line for line in _lines("requirements.txt") if line.startswith(INDEX)]
    assert index == _lines("requirements.txt")[0]
    assert index.endswith("/whl/cpu")
    (torch,) = [pin for pin in PINS if pin.name == "torch"]
    assert _pinned(torch).local == "cpu"


def test_the_python_of_the_image_is_one_that_the_project_takes():
    (line,) = _lines("runtime.txt")
    version = re.fullmatch(r"python-(\d+\.\d+)", line)
    assert version, line
    assert SpecifierSet(PROJECT["requires-python"]).contains(version[1])


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_a_script_is_executable_and_bash_can_read_it(name):
    script = BINDER / name
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").startswith("#!/bin/bash\n")
    subprocess.run(["bash", "-n", str(script)], check=True)


def _bash(command):
    """Run a line as the image would, with this environment's Python in front."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_build_stops_at_its_first_failure_installs_without_dependencies_and_fetches_the_model():
    lines = _lines("postBuild")
    assert lines[0] == "set -euo pipefail"
    assert any("pip install" in line and "--no-deps -e ." in line for line in lines)
    assert any(line.endswith("models pull smollm2-135m") for line in lines)
    assert any(line.startswith("jupyter trust walkthroughs/") for line in lines)


def test_the_build_ends_in_a_doctor_that_finds_nothing_broken():
    last = _lines("postBuild")[-1]
    assert last == "python -m lab.cli.main doctor"
    done = _bash(last)
    assert done.returncode == 0, done.stdout + done.stderr
    states = {line.split()[0] for line in done.stdout.splitlines()}
    assert states <= {"ok", "note"}


def test_what_is_started_gets_one_thread_and_few_arenas():
    found = _bash("binder/start env").stdout.splitlines()
    assert {"OMP_NUM_THREADS=1", "MALLOC_ARENA_MAX=2"} <= set(found)

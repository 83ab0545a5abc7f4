"""CI's closing count: what it adds up, and what it refuses."""

import subprocess
import sys

import pytest

from tests.house.gates import ROOT

CASE = '<testcase classname="tests.a" name="{name}">{inner}</testcase>'


def _totals(folder, *inners):
    cases = "".join(CASE.format(name=f"t{i}", inner=inner) for i, inner in enumerate(inners))
    (folder / "one.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    command = [sys.executable, ROOT / ".ci/totals.py", folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_passes_are_counted_and_the_closing_line_stands_alone(tmp_path):
    done = _totals(tmp_path, "", "")
    assert done.returncode == 0
    assert done.stdout == "2 passed, 0 failed, 0 skipped\n"


def test_a_skipped_gpu_test_is_fine(tmp_path):
    done = _totals(tmp_path, "", '<skipped type="pytest.skip" message="gpu: no CUDA device on this machine"/>')
    assert done.returncode == 0
    assert done.stdout == "1 passed, 0 failed, 1 skipped\n"


@pytest.mark.parametrize("message", ["could not import 'gguf'", "no model", "the gpu was busy"])
def test_any_other_skipped_test_fails_the_run(tmp_path, message):
    done = _totals(tmp_path, "", f'<skipped type="pytest.skip" message="{message}"/>')
    assert done.returncode == 1
    assert f"skipped, though only gpu tests may be: tests.a.t1: {message}" in done.stdout


@pytest.mark.parametrize("inner", ['<failure message="no"/>', '<error message="no"/>'])
def test_a_failure_or_an_error_fails_the_run(tmp_path, inner):
    done = _totals(tmp_path, "", inner)
    assert done.returncode == 1
    assert done.stdout == "1 passed, 1 failed, 0 skipped\n"


def test_a_run_without_tests_fails(tmp_path):
    assert _totals(tmp_path).returncode == 1

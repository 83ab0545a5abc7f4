"""A released bundle, and the gate that it passes."""

import json
import subprocess
import sys

import pytest

from engine.errors import ExerciseError
from lab.classroom.leaks import answers_folder, leaks
from lab.classroom.release import release, write_source
from lab.exercises.catalogue import exercise_names, load
from tests.exercises.classes import course

COURSE = course("ada", "bo")
_STRAY_SOLUTION = """
def pick(values, n):
    if n == 0:
        return None
    return min((v for v in values if v >= n), default=None)
"""
_STRAY_CHECK = """
def is_above(t):
    return None if t.got is None else f"a batch of {t.case['batch']} does not fit a graph for {t.got}"
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundle of one problem set."""
    return release(
        "ps3", COURSE, tmp_path_factory.mktemp("release") / "ps3", secrets={"the seed": "a secret seed"}
    ).folder


def test_a_bundle_has_notebook_readme_and_source_and_no_answers(bundle):
    assert (bundle / "ps3/ps3.ipynb").is_file()
    readme = (bundle / "README.md").read_text(encoding="utf-8")
    assert "| ex16 | Choose the bucket | 10 | 6 |" in readme
    assert "hypothesis" in (bundle / "requirements.txt").read_text(encoding="utf-8")
    assert (bundle / "stepscope/pyproject.toml").is_file()
    assert not list(bundle.rglob("solution.py"))
    assert not (bundle / "stepscope/tests").exists()
    numbers = {path.name[:2] for path in (bundle / "stepscope/walkthroughs").iterdir()}
    assert {load(name).meta.places.walkthrough for name in exercise_names()} <= numbers
    assert not (bundle / "stepscope/walkthroughs/run_a_class.ipynb").exists()


def test_a_bundle_knows_the_versions_of_its_course_and_a_course_of_variants_leaves_them_to_notebooks(bundle, tmp_path):
    command = [sys.executable, "-m", "lab.cli.main", "check", "ex17", "--spec"]
    done = subprocess.run(command, cwd=bundle / "stepscope", capture_output=True, text=True, check=True)
    rules = {rule.id: rule.text for rule in load("ex17").meta.rules}
    assert COURSE.rule("ex17") == "b"
    assert rules["b"] in done.stdout
    assert "--rule" not in (bundle / "README.md").read_text(encoding="utf-8")
    other = release("ps3", course("ada", per_student=True), tmp_path / "other").folder
    assert not (other / "stepscope/lab/exercises/rules.toml").exists()
    assert "Add the `--rule` that your notebook's check cell names." in (other / "README.md").read_text(
        encoding="utf-8"
    )


def test_a_bundle_has_no_hidden_check(bundle):
    for name, place in exercise_names().items():
        text = (bundle / "stepscope/lab/exercises" / place / "properties.py").read_text(encoding="utf-8")
        assert "@checks.hidden" not in text, name
        assert "@checks.visible" in text, name


def test_a_student_checks_with_the_bundle_alone(bundle, tmp_path):
    answer = tmp_path / "ex16.py"
    answer.write_text("def bucket_for(sizes, batch):\n    return max(sizes)\n", encoding="utf-8")
    command = [sys.executable, "-m", "lab.cli.main", "check", "ex16", str(answer), "--json"]
    done = subprocess.run(command, cwd=bundle / "stepscope", capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert report["hidden"] == ["above the largest size", "one more request never takes a smaller size"]
    assert len(report["checks"]) == 4


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        (
            "stepscope/engine/stray.py",
            _STRAY_SOLUTION,
            "pick does what the solution of ex16 (bucket_for) does",
        ),
        ("ps3/exercise/solution.py", "x = 1\n", "a file of answers"),
        ("ps3/notes.md", "the hidden cases come from: a secret seed\n", "the seed"),
        (
            "stepscope/lab/exercises/stray.py",
            _STRAY_CHECK,
            "a hidden check of ex16 (is_above)",
        ),
    ],
)
def test_the_gate_finds_what_gives_an_answer_away(tmp_path, path, text, words):
    target = tmp_path / path.replace("exercise", "ex16_choose_the_bucket")
    target.parent.mkdir(parents=True)
    target.write_text(text, encoding="utf-8")
    [found] = leaks(tmp_path, answers_folder(), {"the seed": "a secret seed"})
    assert words in str(found)


def test_the_gate_finds_an_answer_and_an_output_in_a_notebook(tmp_path):
    source = "def f(buffer, live, bucket, previous):\n    end = bucket\n    buffer[..., live:end] = 0\n"
    cell = {"cell_type": "code", "source": source, "outputs": [{}], "metadata": {}}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    found = [str(one) for one in leaks(tmp_path, answers_folder())]
    assert found == ["a.ipynb, cell 0:1: f does what the solution of ex19 (clean) does", "a.ipynb, cell 0: an output"]


def test_nothing_is_released_into_a_folder_with_files_or_without_answers(tmp_path):
    (tmp_path / "old.txt").write_text("x", encoding="utf-8")
    with pytest.raises(ExerciseError, match="is not empty; name a new folder"):
        release("ps3", COURSE, tmp_path)
    with pytest.raises(ExerciseError, match="the solutions are not in"):
        release("ps3", COURSE, tmp_path / "new", answers=tmp_path)
    with pytest.raises(ExerciseError, match="there is no problem set 'ps9'"):
        release("ps9", COURSE, tmp_path / "new")


def test_the_teachers_source_notebook_holds_every_solution(tmp_path):
    cells = json.loads(write_source("ps3", COURSE, tmp_path).read_text(encoding="utf-8"))["cells"]
    assert sum("### BEGIN SOLUTION" in "".join(cell["source"]) for cell in cells) == 4

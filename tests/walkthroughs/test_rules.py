"""The form of a walkthrough, read from its source: short cells, a question, a prediction, a way to break it, an end."""

import re
from pathlib import Path

import jupytext
import pytest

from lab.exercises.catalogue import exercise_names, load

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "walkthroughs/src").glob("*.py"))
MAX_CODE_CELLS = 12
MAX_CELL_LINES = 12
FOR_TEACHERS = {"run_a_class": "# Run a class\n"}  # no number: it belongs to no place in the learner's order
EN = {
    "question": "**The question.**",
    "simulated": "**Simulated here:**",
    "predict": "## Predict before you look",
    "break": ("**Break it on purpose.**", "## Break it on purpose"),
    "files": "You have just seen three files:",
    "exercises": "**Exercises:**",
}
BESIDE_A_GPU = ("09", "10", "11", "12")  # where graphs are the point
BESIDE_THE_ARTICLE = tuple(f"{number:02d}" for number in range(2, 12))  # the parts of the step that it describes
ZH = {
    "question": "**问题。**",
    "simulated": "**这里模拟的：**",
    "predict": "## 先预测，再看",
    "break": ("**故意弄坏它。**", "## 故意弄坏它"),
    "files": "你刚刚看过三个文件：",
    "exercises": "**练习：**",
}

each_source = pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)


def _cells(path, kind):
    return [cell.source for cell in jupytext.read(path, fmt="py:percent").cells if cell.cell_type == kind]


def _words(path):
    return ZH if path.stem.endswith("_zh") else EN


@each_source
def test_a_source_has_few_short_cells(path):
    cells = _cells(path, "code")
    assert 4 <= len(cells) <= MAX_CODE_CELLS
    assert max(cell.count("\n") + 1 for cell in cells) <= MAX_CELL_LINES


@each_source
def test_a_source_begins_with_its_title_its_question_and_what_is_simulated(path):
    first, words = _cells(path, "markdown")[0], _words(path)
    number = path.stem[:2]
    assert first.startswith(f"# {int(number)}. " if number.isdigit() else FOR_TEACHERS[path.stem])
    assert words["question"] in first
    [line] = [line for line in first.split("\n\n") if line.startswith(words["simulated"])]
    assert len(line) < 420


@each_source
def test_a_prediction_is_asked_for_and_then_checked(path):
    prose, code = "\n".join(_cells(path, "markdown")), _cells(path, "code")
    assert _words(path)["predict"] in prose
    [asked] = [at for at, cell in enumerate(code) if re.search(r"^prediction = ", cell, re.MULTILINE)]
    assert '"?"' in code[asked], "the committed prediction is open"
    assert any("prediction" in cell for cell in code[asked + 1 :]), "nothing looks at the prediction"


@each_source
def test_a_source_breaks_something_and_shows_the_stepper_once(path):
    code = "\n".join(_cells(path, "code"))
    prose = "\n".join(_cells(path, "markdown"))
    assert any(form in prose for form in _words(path)["break"])
    assert code.count("\nshow(") + code.startswith("show(") <= 1, "each frame weighs a third of a notebook's limit"


@each_source
def test_a_source_ends_with_three_files_of_the_tree_and_its_exercises(path):
    last, words = _cells(path, "markdown")[-1], _words(path)
    files = re.findall(r"`((?:engine|lab|walkthroughs)/[\w/]+\.py)`", last.partition(words["files"])[2])
    assert len(files) == 3
    assert [name for name in files if not (ROOT / name).is_file()] == []
    assert words["exercises"] in last
    assert re.search(r"`ex\d\d`", last)


@pytest.mark.parametrize("number", BESIDE_A_GPU)
def test_a_trace_of_a_real_gpu_is_read_where_graphs_are_the_point(number):
    [path] = [path for path in SOURCES if path.stem.startswith(number)]
    [trace] = {found for cell in _cells(path, "code") for found in re.findall(r'Path\("(data/[\w./]+)"\)', cell)}
    assert (ROOT / "walkthroughs" / trace).is_file()


@pytest.mark.parametrize("number", BESIDE_THE_ARTICLE)
def test_where_the_article_has_it_otherwise_is_said(number):
    [path] = [path for path in SOURCES if path.stem.startswith(number)]
    assert "## Where the article has it otherwise" in "\n".join(_cells(path, "markdown"))


@each_source
def test_every_file_and_every_notebook_that_a_source_names_exists(path):
    prose = "\n".join(_cells(path, "markdown"))
    files = re.findall(r"`((?:engine|lab|tests|walkthroughs)/[\w/]+\.(?:py|md))`", prose)
    links = re.findall(r"\]\((?!https?:)([\w./]+\.ipynb)\)", prose)
    assert [name for name in files if not (ROOT / name).is_file()] == []
    stems = {source.stem for source in SOURCES}
    assert [link for link in links if Path(link).stem not in stems] == []


def test_each_exercise_is_named_by_the_walkthrough_that_it_belongs_to():
    for name in exercise_names():
        [path] = [p for p in SOURCES if p.stem.startswith(load(name).meta.places.walkthrough) and _words(p) is EN]
        assert f"`{name}`" in path.read_text(encoding="utf-8"), f"{path.stem} does not name {name}"


@each_source
def test_every_exercise_that_a_source_names_exists(path):
    named = set(re.findall(r"`(ex\d\d)`", path.read_text(encoding="utf-8")))
    assert named <= set(exercise_names())


@each_source
def test_only_public_names_are_imported(path):
    code = "\n".join(_cells(path, "code"))
    assert not re.findall(r"(?:import|\.)\s*_[a-z]\w*", code), "a private name"
    assert not re.findall(r"https?://", code)


@each_source
def test_the_readme_lists_it(path):
    assert f"walkthroughs/{path.stem}.ipynb" in (ROOT / "README.md").read_text(encoding="utf-8")

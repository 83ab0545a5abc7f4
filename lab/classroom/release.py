"""Release a problem set: a folder for students, with notebooks and all that they need to check their answers.

The folder holds the notebooks, the project's own source without hidden checks, and a page that says how to begin. It is
looked through by the leak gate before anybody is told that it is ready.

Does not: publish, or grade.
"""

import dataclasses
import shutil
from pathlib import Path
from typing import Any, Final

import nbformat

from engine.errors import ExerciseError
from lab.classroom.course import Course
from lab.classroom.leaks import Leak, answers_folder, leaks, solution_for
from lab.classroom.notebooks import source_notebook, student_notebook
from lab.classroom.syntax import without_hidden
from lab.exercises.catalogue import ROOT, exercise_names, load, problem_set

_PROJECT: Final = ROOT.parents[1]
_COPIED: Final = ("engine", "lab", "pyproject.toml", "LICENSE", "README.md")
_MOST_LEAKS: Final = 5
# What checking needs: all that the project needs but the engine's own libraries, PyTorch above all.
_LIGHT: Final = (
    "numpy>=1.26",
    "hypothesis>=6.120",
    "ipywidgets>=8.1.5,<9",
    "anywidget>=0.9.18,<1",
    "plotly>=6,<8",
    "jupyterlab>=4.2,<5",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Released:
    """What was written. notebooks: one, or one for each student."""

    folder: Path
    notebooks: tuple[Path, ...]
    num_files: int


def release(
    set_name: str,
    course: Course,
    out: Path,
    *,
    answers: str | Path | None = None,
    secrets: dict[str, str] | None = None,
) -> Released:
    """Write the bundle of one problem set into ``out``. Raises: ExerciseError, also when anything would leak."""
    problem_set(set_name)
    folder = answers_folder(answers)
    if out.exists() and any(out.iterdir()):
        message = f"{out} is not empty; name a new folder, or empty it"
        raise ExerciseError(message)
    if not (_PROJECT / "pyproject.toml").is_file():
        message = f"a release is made of the project's own source; there is no pyproject.toml in {_PROJECT}"
        raise ExerciseError(message)
    out.mkdir(parents=True, exist_ok=True)
    notebooks = _write_notebooks(set_name, course, out)
    _copy_project(out / "stepscope")
    _write_rules(course, out / "stepscope")
    (out / "README.md").write_text(_readme(set_name, course), encoding="utf-8")
    (out / "requirements.txt").write_text("\n".join(_LIGHT) + "\n", encoding="utf-8")
    found = leaks(out, folder, secrets)
    if found:
        shutil.rmtree(out)
        raise ExerciseError(_refusal(found))
    return Released(out, tuple(notebooks), sum(1 for path in out.rglob("*") if path.is_file()))


def write_source(set_name: str, course: Course, out: Path, *, answers: str | Path | None = None) -> Path:
    """Write nbgrader's source of a set, with solutions: for the teacher alone. Raises: ExerciseError."""
    folder = answers_folder(answers)
    solutions = {name: solution_for(folder, name, course.rule(name)) for name in course.exercises(set_name)}
    path = out / "source" / set_name / f"{set_name}.ipynb"
    return _write(source_notebook(course, set_name, solutions), path)


def _write_notebooks(set_name: str, course: Course, out: Path) -> list[Path]:
    if not course.is_per_student:
        return [_write(student_notebook(course, set_name), out / set_name / f"{set_name}.ipynb")]
    if not course.students:
        message = 'rules = "student" needs [[students]] in the course file'
        raise ExerciseError(message)
    return [
        _write(student_notebook(course, set_name, one.id), out / set_name / one.id / f"{set_name}.ipynb")
        for one in course.students
    ]


def _write(notebook: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def _copy_project(target: Path) -> None:
    """Copy the source, without hidden checks and caches, and the learners' walkthroughs."""
    target.mkdir()
    skipped = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", *("solution.py", "right.py", "wrong.py"))
    for name in _COPIED:
        source = _PROJECT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=skipped)
        elif source.is_file():
            shutil.copy(source, target / name)
    (target / "walkthroughs").mkdir()
    for path in sorted((_PROJECT / "walkthroughs").glob("[0-9]*.ipynb")):  # the teacher's has no number
        shutil.copy(path, target / "walkthroughs" / path.name)
    for path in (target / "lab" / "exercises").glob("ex*/properties.py"):
        path.write_text(without_hidden(path.read_text(encoding="utf-8")), encoding="utf-8")


def _write_rules(course: Course, project: Path) -> None:
    """Write the course's versions of the rules, for checks outside of the notebook; a student's own are only there."""
    if not course.is_per_student:
        text = "".join(f'{name} = "{course.rule(name)}"\n' for name in exercise_names())
        (project / "lab" / "exercises" / "rules.toml").write_text(text, encoding="utf-8")


def _refusal(found: list[Leak]) -> str:
    shown = "; ".join(str(one) for one in found[:_MOST_LEAKS])
    more = f"; and {len(found) - _MOST_LEAKS} more" if len(found) > _MOST_LEAKS else ""
    return f"nothing was released, since it would give answers away: {shown}{more}"


def _readme(set_name: str, course: Course) -> str:
    chosen = problem_set(set_name)
    rows = "\n".join(
        f"| {name} | {load(name).meta.title} | {load(name).meta.minutes} | {load(name).meta.points} |"
        for name in course.exercises(set_name)
    )
    rule = ""
    if course.is_per_student:
        rule = " Add the `--rule` that your notebook's check cell names."
    due = f"Due: {course.due[set_name]}.\n\n" if set_name in course.due else ""
    where = f"`{set_name}/{set_name}.ipynb`"
    if course.is_per_student:
        where = f"`{set_name}/YOUR-ID/{set_name}.ipynb` (your own: other students' tasks differ in a rule)"
    text = (Path(__file__).parent / "student_readme.md").read_text(encoding="utf-8")
    return text.format(set_name=set_name, title=chosen["title"], due=due, rows=rows, where=where, rule=rule)

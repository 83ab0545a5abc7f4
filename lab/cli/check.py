"""``stepscope check``: check an answer to an exercise, or give its starter, task or hint.

The answer runs in a child process with limits, as in grading. Exit status: 0 all visible checks hold, 1 one does not.

Does not: judge (``lab/exercises``), or grade a class (``stepscope grade``).
"""

import argparse
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.errors import ExerciseError

if TYPE_CHECKING:
    from lab.exercises.exercise import Exercise
    from lab.exercises.report import Report

_WRONG: Final = 1
_RULE_LINE: Final = re.compile(r"^# stepscope: (ex\d\d) rule (\w+)$", re.MULTILINE)
_PERIOD: Final = 0.3  # seconds between two looks at a watched file


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "check",
        help="check an answer to an exercise",
        description="Check an answer to an exercise: worked examples, then properties with the smallest "
        "counterexample. Without an exercise, list them all.",
    )
    parser.add_argument("exercise", nargs="?", help="for example ex07")
    parser.add_argument("file", nargs="?", help="a .py file or a notebook (exNN_*.py or .ipynb in this folder)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--watch", action="store_true", help="check again whenever the file is saved; Ctrl-C ends it")
    what.add_argument("--start", action="store_true", help="write the file to begin with, with the task in it")
    what.add_argument("--hint", type=int, choices=(1, 2, 3), help="print a hint: 1 points, 2 explains, 3 nearly tells")
    what.add_argument("--spec", action="store_true", help="print the task")
    what.add_argument(
        "--walkthrough", action="store_true", help="where the answer passes, write its walkthrough to run on it"
    )
    parser.add_argument("--rule", help="the version of the rule, when the file does not name it")
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.set_defaults(run=check_answer)


def check_answer(arguments: argparse.Namespace) -> int:
    """Do what was asked for."""
    from lab.exercises.catalogue import load, rule_of

    if arguments.exercise is None:
        print("\n".join(listing()))
        return 0
    exercise = load(arguments.exercise)
    if arguments.hint:
        from lab.exercises.report import hint_text

        print(hint_text(exercise, arguments.hint))
        return 0
    if arguments.spec:
        print(f"{exercise.id} {exercise.meta.title}\n\n{exercise.spec(rule_of(exercise, arguments.rule))}")
        return 0
    if arguments.start:
        print(f"written: {start(exercise, rule_of(exercise, arguments.rule), arguments.file)}")
        return 0
    path = Path(arguments.file) if arguments.file else find_file(exercise)
    if arguments.watch:
        return _watch(exercise, path, arguments)
    return _check_once(exercise, path, arguments)


def listing() -> list[str]:
    """Return every problem set with its exercises, and where to begin: in a set's folder with that set."""
    from lab.exercises.catalogue import load, problem_sets

    begin = problem_sets()[set_of_folder(Path()) or next(iter(problem_sets()))]
    out: list[str] = []
    for name, one in problem_sets().items():
        out.append(f"{name} {one['title']}")
        for found in (*one["exercises"], *one["further"]):
            meta = load(found).meta
            out.append(f"  {found}  {meta.title:<34} {meta.minutes:>2} min  {meta.points} points")
    return [*out, f"Begin with: stepscope check {begin['exercises'][0]} --start"]


def set_of_folder(here: Path) -> str | None:
    """Return the problem set that a folder is of, None for another one: by its name, or by the set's notebook in it.

    A release has the notebook in a folder of the set's name, or there in one for each student.
    """
    from lab.exercises.catalogue import problem_sets

    for name in problem_sets():
        if here.resolve().name == name or any(here.glob(f"{name}.ipynb")):
            return name
        if any(here.glob(f"{name}/{name}.ipynb")) or any(here.glob(f"{name}/*/{name}.ipynb")):
            return name
    return None


def start(exercise: "Exercise", rule: str, file: str | None) -> Path:
    """Write the starter with the task as its docstring; never over an existing file. Raises: ExerciseError."""
    path = Path(file or f"{exercise.folder.name}.py")
    if path.exists():
        message = f"{path} exists; go on there, or name another file"
        raise ExerciseError(message)
    code = exercise.starter.split('"""', 2)[2].lstrip("\n")  # without the module's docstring
    task = exercise.spec(rule).replace("\\", "\\\\").replace('"""', "'''")
    head = f'# stepscope: {exercise.id} rule {rule}\n"""{exercise.meta.title}\n\n{task.rstrip()}\n"""\n\n'
    path.write_text(head + code, encoding="utf-8")
    return path


def find_file(exercise: "Exercise") -> Path:
    """Return the one file of this folder that is named for the exercise. Raises: ExerciseError."""
    here = Path()
    found = sorted([*here.glob(f"{exercise.id}*.py"), *here.glob(f"{exercise.id}*.ipynb")])
    if len(found) != 1:
        what = "no file" if not found else f"{len(found)} files"
        fix = f"write one with `stepscope check {exercise.id} --start`" if not found else "name the one that is meant"
        message = f"there {'is' if not found else 'are'} {what} named {exercise.id}* in this folder; {fix}"
        raise ExerciseError(message)
    return found[0]


def read_answer(path: Path, exercise: "Exercise") -> tuple[str, str | None]:
    """Return the source of an answer, and the rule that it names: a .py file, or a notebook's cells.

    Raises: ExerciseError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        message = f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        raise ExerciseError(message) from error
    if path.suffix != ".ipynb":
        return text, dict(_RULE_LINE.findall(text)).get(exercise.id)
    from lab.classroom.submissions import read_notebook, rule_named

    return read_notebook(text, (exercise.id,))[exercise.id].source, rule_named(text, exercise.id)


def _check_once(exercise: "Exercise", path: Path, arguments: argparse.Namespace) -> int:
    from lab.exercises.checking import check_source

    source, named = read_answer(path, exercise)
    report = check_source(exercise.id, source, rule=arguments.rule or named)
    if arguments.walkthrough and report.passed:
        print(f"written: {_write_walkthrough(exercise, source, report.rule)}; open it in JupyterLab and run all cells")
        return 0
    arguments.status = 0 if report.passed else _WRONG
    if arguments.json:
        import json

        print(json.dumps(as_json(report), indent=2))
    else:
        print(report)
    return arguments.status


def _write_walkthrough(exercise: "Exercise", source: str, rule: str) -> Path:
    """Write the exercise's walkthrough with the answer in it. Raises: ExerciseError."""
    import nbformat

    from lab.exercises.own_code import walkthrough_path, walkthrough_with

    path = Path(f"{walkthrough_path(exercise).stem}_on_{exercise.id}.ipynb")
    nbformat.write(walkthrough_with(exercise, source, rule=rule), path)
    return path


def as_json(report: "Report") -> dict[str, Any]:
    """Return the report in plain values."""
    named = report.misconception
    checks = [
        {
            "name": one.name,
            "kind": one.kind,
            "passed": one.passed,
            "case": None if one.counterexample is None else one.counterexample.case,
            "problem": None if one.counterexample is None else one.counterexample.problem,
        }
        for one in report.results
    ]
    return {
        "exercise": report.exercise.id,
        "rule": report.rule,
        "passed": report.passed,
        "checks": checks,
        "misconception": None if named is None else {"id": named.id, "text": named.text},
        "hidden": list(report.exercise.meta.hidden),
    }


def _watch(exercise: "Exercise", path: Path, arguments: argparse.Namespace) -> int:
    """Check at every save, until interrupted or until all visible checks hold."""
    seen: int | None = None
    while True:
        try:
            now = path.stat().st_mtime_ns
        except FileNotFoundError:
            now = seen  # an editor may be replacing it
            if seen is None:
                raise ExerciseError(f"there is no file {path}") from None  # noqa: EM102, TRY003
        if now != seen:
            seen = now
            print(f"\nwatching {path}; Ctrl-C ends", flush=True)
            if _check_once(exercise, path, arguments) == 0:
                return 0
        time.sleep(_PERIOD)

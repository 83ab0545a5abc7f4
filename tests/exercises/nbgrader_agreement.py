"""nbgrader's own commands on our source notebooks: they must agree with ours on the visible part.

    python -m tests.exercises.nbgrader_agreement --nbgrader VENV/bin/nbgrader [--set ps3] [--students 6]

Generates an assignment from our source notebook, compares it with our release, grades a generated class with its
autograde and with ours, writes our marks through ``sync-nbgrader``, and sends one submission through nbgrader's
exchange on a local folder. VENV holds nbgrader, hypothesis and numpy; it need not hold this project.

Does not: install anything.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.classroom.batch import find_submissions, grade_all
from lab.classroom.gradebook import write_gradebook
from lab.classroom.notebooks import student_notebook
from lab.classroom.release import write_source
from tests.exercises.classes import course, write_class

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
c = get_config()
c.CourseDirectory.course_id = "testing"
c.CourseDirectory.root = {folder!r}
c.Exchange.root = {exchange!r}
c.ExecutePreprocessor.timeout = 240
"""
READ_MARKS = """
import json, sys
from nbgrader.api import Gradebook
with Gradebook(sys.argv[1]) as book:
    grades = [g for s in book.assignment_submissions(sys.argv[2]) for n in s.notebooks for g in n.grades]
    print(json.dumps({f"{g.notebook.assignment.student.id} {g.cell.name}": g.auto_score for g in grades}))
"""


class Nbgrader:
    """nbgrader's command in one folder."""

    def __init__(self, command: Path, folder: Path, exchange: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        exchange.mkdir(exist_ok=True)
        exchange.chmod(0o777)
        self.folder, self.command = folder, command
        text = CONFIG.format(folder=str(folder), exchange=str(exchange))
        (folder / "nbgrader_config.py").write_text(text, encoding="utf-8")
        path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "JUPYTER_PREFER_ENV_PATH": "1"}

    def run(self, *arguments: str) -> str:
        """Run the command, or a program of its environment; stop with its words when it fails."""
        command = [str(self.command), *arguments]
        if arguments[0] == "python":
            command = [str(self.command.parent / "python"), *arguments[1:]]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


def same_notebook(theirs: dict, ours: dict) -> list[str]:
    """Return the ids of cells that differ, but for nbgrader's own way of leaving an answer out."""
    differ = []
    for one, other in zip(theirs["cells"], ours["cells"], strict=True):
        text = (
            "".join(one["source"])
            .replace("    # YOUR CODE HERE\n", "")
            .replace("NotImplementedError()", "NotImplementedError")
        )
        marks = one["metadata"]["nbgrader"]
        if text != other["source"] and text != "YOUR ANSWER HERE":
            differ.append(marks["grade_id"])
        keys = ("grade_id", "grade", "solution", "locked", "points")
        if [marks.get(key) for key in keys] != [other["metadata"]["nbgrader"].get(key) for key in keys]:
            differ.append(f"{marks['grade_id']} (metadata)")
    return differ


def main() -> None:
    """Compare, and end with status 1 at the first disagreement."""
    parser = argparse.ArgumentParser(description="Compare nbgrader's marks with ours.")
    parser.add_argument("--nbgrader", type=Path, required=True)
    parser.add_argument("--set", default="ps3")
    parser.add_argument("--students", type=int, default=6)
    arguments = parser.parse_args()
    name = arguments.set
    which = course(*[f"s{number:02d}" for number in range(arguments.students)])
    with tempfile.TemporaryDirectory() as scratch:
        room = Path(scratch)
        teacher = Nbgrader(arguments.nbgrader, room / "course", room / "exchange")
        write_source(name, which, teacher.folder)
        teacher.run("generate_assignment", name, "--create")
        released = json.loads((teacher.folder / f"release/{name}/{name}.ipynb").read_text(encoding="utf-8"))
        differ = same_notebook(released, student_notebook(which, name))
        if differ:
            sys.exit(f"nbgrader's release differs from ours in {differ}")
        write_class(teacher.folder / "submitted", which, name)
        teacher.run("autograde", name, "--create")
        database = f"sqlite:///{teacher.folder}/gradebook.db"
        marks = json.loads(teacher.run("python", "-c", READ_MARKS, database, name))
        entries = grade_all(
            find_submissions(teacher.folder / "submitted"), which, room / "grades", seed="hidden seed", quiet=True
        )
        write_gradebook(room / "grades", which, entries)
        compared = 0
        for one in entries:
            for graded in one["exercises"]:
                visible = sum(check["passed"] for check in graded["checks"] if check["kind"] != "hidden")
                theirs = marks[f"{one['student_id']} {graded['exercise']}-check"]
                if theirs != visible:
                    sys.exit(f"{one['student_id']} {graded['exercise']}: nbgrader says {theirs}, we say {visible}")
                compared += 1
        teacher.run("python", "-m", "lab.cli.main", "sync-nbgrader", str(room / "grades"), "--db", database)
        marks = json.loads(teacher.run("python", "-c", READ_MARKS, database, name))
        for one in entries:
            for graded in one["exercises"]:
                if marks[f"{one['student_id']} {graded['exercise']}-check"] != graded["points"]:
                    sys.exit(f"{one['student_id']} {graded['exercise']}: sync-nbgrader wrote another mark")
        _exchange(teacher, arguments.nbgrader, room, name)
    sys.stdout.write(f"{name}: {compared} marks agree with nbgrader's, were synced, and went through its exchange\n")


def _exchange(teacher: Nbgrader, command: Path, room: Path, name: str) -> None:
    """Release, fetch, submit and collect one notebook on a local folder."""
    for one in (teacher.folder / "submitted").iterdir():
        one.rename(room / f"kept-{one.name}")
    teacher.run("release_assignment", name)
    student = Nbgrader(command, room / "student", room / "exchange")
    student.run("fetch_assignment", name, "--course", "testing")
    student.run("submit", name, "--course", "testing")
    teacher.run("collect", name)
    [found] = find_submissions(teacher.folder / "submitted")
    if not found.timestamp:
        sys.exit("a collected submission has no timestamp")


if __name__ == "__main__":
    main()

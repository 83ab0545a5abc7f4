"""``stepscope grade``: grade a folder of submissions, with hidden checks, and write the gradebook.

Interrupted, it goes on where it stopped. Grading the same submissions again writes the same bytes.

Does not: word pages (``stepscope report``).
"""

import argparse
import json
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "grade",
        help="grade submissions",
        description="Grade a folder of notebooks (STUDENT/SET/*.ipynb, STUDENT/*.ipynb or STUDENT.ipynb). Each answer "
        "runs in a process of its own with limits. They guard against accidents and common tricks, not against a "
        "determined attacker: grade strangers' code in a container or a virtual machine.",
    )
    parser.add_argument("submissions", metavar="SUBMISSIONS", help="the folder")
    parser.add_argument("--course", required=True, metavar="FILE", help="the course file (course.toml)")
    parser.add_argument("--seed-file", required=True, metavar="FILE", help='seed = "..." of the hidden checks')
    parser.add_argument("--out", default="grades", metavar="DIR", help="where the gradebook is written (%(default)s)")
    parser.add_argument("--set", metavar="SET", help="only this problem set")
    parser.add_argument("--only", metavar="EXERCISE", help="grade this exercise alone; other marks stay as they were")
    parser.add_argument("--diff", action="store_true", help="print whose mark moves, and write nothing")
    parser.add_argument("--json", action="store_true", help="print the gradebook as JSON")
    parser.set_defaults(run=grade_submissions)


def grade_submissions(arguments: argparse.Namespace) -> int:
    """Grade, compare with the gradebook that is there, and write it."""
    from lab.classroom.batch import find_submissions, grade_all
    from lab.classroom.course import read_course, read_seed
    from lab.classroom.gradebook import GRADEBOOK, moves, read_gradebook, write_gradebook

    course, seed, out = read_course(arguments.course), read_seed(arguments.seed_file), Path(arguments.out)
    found = find_submissions(Path(arguments.submissions), arguments.set)
    before = read_gradebook(out) if (out / GRADEBOOK).is_file() else None
    graded = grade_all(found, course, out, seed=seed, only=arguments.only, quiet=arguments.json)
    if arguments.diff:
        lines = moves(before, graded)
        print("\n".join(lines) if lines else "no mark moves")
        return 0
    entries = _joined(before, graded) if arguments.only else _kept(before, graded)
    write_gradebook(out, course, entries)
    if arguments.json:
        print(json.dumps(read_gradebook(out), indent=1))
        return 0
    print("\n".join(_marks(graded, entries, is_one=arguments.only is not None)))
    print(f"written: {out / GRADEBOOK} and gradebook.csv; pages: stepscope report {out}")
    return 0


def _marks(graded: list[dict[str, Any]], entries: list[dict[str, Any]], *, is_one: bool) -> list[str]:
    """Return a line for each student and set; where one exercise was graded, its points stand before the set's."""
    sets = {(one["student_id"], one["assignment"]): one for one in entries}
    lines: list[str] = []
    for new in graded:
        student, name = new["student_id"], new["assignment"]
        one = sets.get((student, name))
        if one is None:
            lines.append(f"{student}  {name}  not in the gradebook yet, and left out: grade without --only")
            continue
        score = f"{one['score']:g} of {one['max_score']:g}"
        if not is_one:
            lines.append(f"{student}  {name}  {score}")
            continue
        [own] = new["exercises"]
        lines.append(f"{student}  {own['exercise']}  {own['points']} of {own['max_points']}  ({name}: {score})")
    return lines


def _kept(before: dict[str, Any] | None, graded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the new entries, and those of other problem sets that were graded earlier."""
    new = {one["assignment"] for one in graded}
    return [*graded, *(one for one in (before or {"entries": []})["entries"] if one["assignment"] not in new)]


def _joined(before: dict[str, Any] | None, graded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put one exercise's marks into the entries that are there. Raises: ExerciseError where there are none."""
    from engine.errors import ExerciseError

    if before is None:
        message = "--only changes a gradebook that is there; grade everything first (or add --diff)"
        raise ExerciseError(message)
    new = {(one["assignment"], one["student_id"]): one for one in graded}
    entries: list[dict[str, Any]] = []
    for one in before["entries"]:
        fresh = new.pop((one["assignment"], one["student_id"]), None)
        changed = {e["exercise"]: e for e in fresh["exercises"]} if fresh else {}
        exercises = [changed.get(e["exercise"], e) for e in one["exercises"]]
        points = float(sum(e["points"] for e in exercises))
        entries.append({**one, "exercises": exercises, "raw_score": points, "score": points})
    return entries

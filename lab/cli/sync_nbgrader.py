"""``stepscope sync-nbgrader``: write the marks into nbgrader's gradebook, through its own API.

Does not: grade, or run any of nbgrader's commands.
"""

import argparse
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "sync-nbgrader",
        help="write marks into nbgrader's gradebook",
        description="Write the marks of `stepscope grade` into nbgrader's gradebook; needs the extra `classroom`.",
    )
    parser.add_argument("grades", metavar="DIR", help="the folder that `stepscope grade` wrote")
    parser.add_argument("--db", default="gradebook.db", metavar="FILE", help="nbgrader's gradebook (%(default)s)")
    parser.set_defaults(run=sync_marks)


def sync_marks(arguments: argparse.Namespace) -> int:
    """Write the marks."""
    from lab.classroom.gradebook import read_gradebook
    from lab.classroom.nbgrader_sync import sync

    database = arguments.db if "://" in arguments.db else f"sqlite:///{Path(arguments.db)}"
    count = sync(read_gradebook(Path(arguments.grades)), database)
    print(f"written: {count} {'score' if count == 1 else 'scores'} into {database}")
    return 0

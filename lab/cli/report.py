"""``stepscope report``: pages of a graded class, one a student and one for the teacher.

Does not: grade.
"""

import argparse
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "report",
        help="write pages of a graded class",
        description="Write a page for each student, and one for the teacher with the wrong ideas that dominate.",
    )
    parser.add_argument("grades", metavar="DIR", help="the folder that `stepscope grade` wrote")
    parser.add_argument("--out", metavar="DIR", help="where the pages are written (DIR/report)")
    parser.set_defaults(run=write_report)


def write_report(arguments: argparse.Namespace) -> int:
    """Write the pages."""
    from lab.classroom.gradebook import read_gradebook
    from lab.classroom.pages import write_pages

    folder = Path(arguments.grades)
    written = write_pages(read_gradebook(folder), Path(arguments.out) if arguments.out else folder / "report")
    print(f"the class: {written[0]}")
    num_pages = len(written) - 1
    print(f"students: {num_pages} {'page' if num_pages == 1 else 'pages'} in {written[0].parent / 'students'}")
    return 0

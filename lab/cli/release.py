"""``stepscope release``: write a problem set's folder for students, if nothing in it gives an answer away.

Does not: grade.
"""

import argparse
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "release",
        help="write a problem set for students",
        description="Write a folder with the notebooks of a problem set and all that students need to check their "
        "answers. It holds no solution, no hidden check and no seed; otherwise nothing is released.",
    )
    parser.add_argument("set", help="ps1, ps2, ps3 or ps4")
    parser.add_argument("--course", required=True, metavar="FILE", help="the course file (course.toml)")
    parser.add_argument("--out", required=True, metavar="DIR", help="a new folder")
    parser.add_argument("--seed-file", metavar="FILE", help="also refuse a bundle that holds this seed")
    parser.add_argument("--answers", metavar="DIR", help="where the solutions are (tests/exercises of the checkout)")
    parser.add_argument(
        "--nbgrader-source", metavar="DIR", help="write nbgrader's source notebook, with solutions, for yourself too"
    )
    parser.set_defaults(run=write_release)


def write_release(arguments: argparse.Namespace) -> int:
    """Write the folder and say what to do with it."""
    from lab.classroom.course import read_course, read_seed
    from lab.classroom.release import release, write_source

    course = read_course(arguments.course)
    secrets = {"the seed of hidden checks": read_seed(arguments.seed_file)} if arguments.seed_file else {}
    done = release(arguments.set, course, Path(arguments.out), answers=arguments.answers, secrets=secrets)
    for path in done.notebooks:
        print(f"notebook: {path}")
    print(f"released: {done.folder} ({done.num_files} files); nothing in it gives an answer away")
    print("Give students the folder as it is; its README.md says how to begin.")
    if arguments.nbgrader_source:
        path = write_source(arguments.set, course, Path(arguments.nbgrader_source), answers=arguments.answers)
        print(f"with solutions, for you alone: {path}")
    return 0

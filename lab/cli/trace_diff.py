"""``stepscope trace diff``: two recorded files side by side: the first difference in words, and the steps that differ.

Does not: run either of them, or draw (``lab.show(compare=(a, b))`` does, in a notebook).
"""

import argparse
import dataclasses
import json
from typing import Any, Final

from lab.cli.tables import table

DIFFERS: Final = 1  # the exit status of two runs that are not the same


def add_action(actions: Any) -> None:
    """Describe the action to argparse."""
    diff = actions.add_parser(
        "diff",
        help="compare two recorded files step by step",
        description="Print the first difference of two runs and a table of the steps that differ. Times, addresses and "
        "block numbers do not count. Exit status: 0 the runs are the same, 1 they differ, 2 a file cannot be read.",
    )
    diff.add_argument("left", help="a trace file, run A")
    diff.add_argument("right", help="another one, run B")
    diff.add_argument("--most", type=int, default=20, metavar="N", help="steps in the table at most (%(default)s)")
    diff.add_argument("--language", choices=("en", "zh"), default="en", help="of the sentence (%(default)s)")
    diff.add_argument("--json", action="store_true", help="print JSON instead")
    diff.set_defaults(run=diff_traces)


def diff_traces(arguments: argparse.Namespace) -> int:
    """Compare the files and print what was found."""
    from lab.trace import Trace
    from lab.widgets.compare import compare

    found = compare(Trace.load(arguments.left), Trace.load(arguments.right))
    listed = found.differences[: max(0, arguments.most)]
    if arguments.json:
        report = {
            "same": found.is_same,
            "sentence": found.sentence(arguments.language),
            "count": len(found.differences),
        }
        steps = [dataclasses.asdict(one) for one in listed]
        print(json.dumps({**report, "config": found.changed, "steps": steps}, ensure_ascii=False, indent=2))
    else:
        print(found.sentence(arguments.language))
        rows = [{"step": one.at, "aspect": one.aspect, "run A": one.left, "run B": one.right} for one in listed]
        if rows:
            print(table(rows))
    return 0 if found.is_same else DIFFERS

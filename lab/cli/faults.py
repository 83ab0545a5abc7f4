"""``stepscope faults``: list the faults, and run them to see what each of them breaks.

Exit status: 0 when every fault that was run was detected (with the guards off: its harm was seen), 1 when one was not.

Does not: contain a fault or run one (``lab/faults`` does).
"""

import argparse
import contextlib
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from lab.cli.trace import table

if TYPE_CHECKING:
    from lab.faults.examine import Outcome, Report

NOT_DETECTED: Final = 1
_WIDTH: Final = 100
_GUARDS: Final = (
    "guards are the engine's own checks and the lab's audit, which recomputes each step from its requests; off takes "
    "both away and shows the harm that they prevent (%(default)s)"
)
_IN_THE_REPORT: Final = (
    'In the JSON, raised_by tells who stopped a run: "engine" (its own check, or it failed) or "audit" (the lab\'s). '
    "raised_step is the step that was stopped; -1 is warm-up, before step 0. detected: every run could be told "
    "from the healthy one, with the guards off by its harm alone."
)


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "faults",
        help="break a rule of the graph path on purpose",
        description="Break one rule of the graph path at a time, on the tiny model, and see what comes of it.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="name every fault and the rule that it breaks")
    listing.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    listing.set_defaults(run=run_list)
    running = actions.add_parser(
        "run",
        help="run one fault, or all, beside the healthy engine",
        description="Run one fault, or all, beside the healthy engine, and say what came of it.",
        epilog=_IN_THE_REPORT,
    )
    what = running.add_mutually_exclusive_group(required=True)
    what.add_argument("name", nargs="?", help="a fault of `stepscope faults list`")
    what.add_argument("--all", action="store_true", help="run every fault")
    running.add_argument("--guards", choices=("on", "off", "both"), default="both", help=_GUARDS)
    running.add_argument("--device", default="cpu", help="cpu (simulated graphs), cuda or auto (%(default)s)")
    running.add_argument("--json", action="store_true", help="print a JSON list, one entry a fault")
    running.set_defaults(run=run_faults)


def run_list(arguments: argparse.Namespace) -> int:
    """Print the names and the rules."""
    from lab.faults.catalogue import FAULTS

    if arguments.json:
        fields = ("name", "explanation", "rule", "source")
        print(json.dumps([{field: getattr(fault, field) for field in fields} for fault in FAULTS.values()], indent=2))
        return 0
    for fault in FAULTS.values():
        print(fault.name)
        print(textwrap.fill(fault.rule, _WIDTH, initial_indent="    ", subsequent_indent="    "))
    return 0


def run_faults(arguments: argparse.Namespace) -> int:
    """Run one fault or all of them, each run in a process of its own, and print what they did."""
    from lab.faults.catalogue import FAULTS, find_fault
    from lab.faults.examine import BACKENDS, GUARDS, Report, device_kind

    names = list(FAULTS) if arguments.all else [find_fault(arguments.name).name]
    guards = GUARDS if arguments.guards == "both" else (arguments.guards,)
    device = device_kind(arguments.device)
    outcomes = _outcomes(names, guards, device)
    backend = BACKENDS[device == "cpu"]
    reports = [Report(FAULTS[name], backend, tuple(outcomes[name, one] for one in guards)) for name in names]
    arguments.status = 0 if all(report.detected for report in reports) else NOT_DETECTED
    if arguments.json:
        print(json.dumps([report.as_json() for report in reports], indent=2))
    elif arguments.all:
        print(table([_row(report) for report in reports]))
        print("\n`stepscope faults run NAME` tells one of them in full.")
    else:
        print("\n".join(describe(reports[0])))
    return arguments.status


def _outcomes(names: Sequence[str], guards: Sequence[str], device: str) -> dict[tuple[str, str], "Outcome"]:
    from tqdm import tqdm

    from lab.faults.children import Task, run_in_children

    tasks = [Task(name, one) for name in names for one in guards]
    found: dict[tuple[str, str], Outcome] = {}
    with (
        contextlib.closing(run_in_children(tasks, device)) as runs,
        tqdm(total=len(tasks), unit="run", file=sys.stderr, disable=None, leave=False) as bar,
    ):
        for task, outcome in runs:
            found[task.name, task.guards] = outcome
            bar.set_postfix_str(task.name)
            bar.update()
    return found


def _row(report: "Report") -> dict[str, Any]:
    row: dict[str, Any] = {"fault": report.fault.name}
    for outcome in report.outcomes:
        row |= {f"guards {outcome.guards}": outcome.verdict, f"step ({outcome.guards})": outcome.first_step}
    return row | {"detected" if _has_guards(report) else "harm seen": "yes" if report.detected else "NO"}


def _has_guards(report: "Report") -> bool:
    return any(outcome.guards == "on" for outcome in report.outcomes)


def _answer(report: "Report") -> str:
    """Say who noticed: a guard, or only whoever compares the run with the healthy one."""
    if not report.detected:
        return "NOT DETECTED" if _has_guards(report) else "NO HARM SEEN"
    said = [_noticed(outcome) for outcome in report.outcomes]
    return f"detected: {'; '.join(said)}" if _has_guards(report) else said[0]


def _noticed(outcome: "Outcome") -> str:
    if outcome.guards == "off":
        return f"{'harm seen' if outcome.raised is None else 'it failed'} with no guard running"
    return "harm seen, which no guard stopped" if outcome.raised is None else f"stopped by the {outcome.raised_by}"


def describe(report: "Report") -> Iterator[str]:
    """Word a fault's report for the terminal, line by line."""
    fault = report.fault
    yield f"{fault.name} on {report.backend}"
    for title, text in (("", fault.explanation), ("rule: ", fault.rule), ("modelled on: ", fault.source)):
        yield textwrap.fill(title + text, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    healthy = report.outcomes[0].texts
    if healthy:
        yield "\nhealthy run"
        yield from (f"  request {at}: {right!r}" for at, (right, _) in enumerate(healthy))
    for outcome in report.outcomes:
        yield f"\nbroken run, guards {outcome.guards}: {outcome.verdict}"
        yield from _facts(outcome)
        yield from (
            f"  request {at}: {got!r}"
            for at, (right, got) in enumerate(outcome.texts)
            if got != right and outcome.raised is None
        )
    yield f"\n{_answer(report)}"


def _facts(outcome: "Outcome") -> Iterator[str]:
    from lab.trace_summary import counted

    if outcome.error is not None:
        yield f"  {outcome.error}"
    if outcome.raised is not None:
        when = "during warm-up" if outcome.raised_step == -1 else f"in step {outcome.raised_step}"
        text = f"{outcome.raised} {when}, by the {outcome.raised_by}: {outcome.message}"
        yield textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    if outcome.wrong_step is not None:
        first = f"first wrong: step {outcome.wrong_step}, row {outcome.wrong_row} {outcome.wrong_text}"
        yield f"  {first}; {counted(outcome.num_wrong, 'wrong row')} in all"
    if outcome.lost_step is not None:
        yield f"  step {outcome.lost_step} runs eagerly, where the healthy run replays a graph"

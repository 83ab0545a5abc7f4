"""``stepscope trace export``: a recorded file as a page that steps by itself, or as a timeline for Perfetto.

Does not: make either (``lab/export`` and ``lab/perfetto.py`` do).
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.cli.step_number import place_of

if TYPE_CHECKING:
    from lab.trace import Trace


_MADE: Final = {"html": ("page", "run.html"), "perfetto": ("timeline", "run.json")}


def add_action(actions: Any) -> None:
    """Describe the action to the parser of ``stepscope trace``."""
    parser = actions.add_parser(
        "export",
        help="make a page that steps by itself, or a timeline",
        description="Make one HTML page that steps through a recorded file without a kernel and without the network, "
        "to send to somebody; or a timeline that ui.perfetto.dev and chrome://tracing open. A page holds a window of a "
        "long run, and says so.",
    )
    parser.add_argument("file", help="a trace file")
    parser.add_argument("--html", metavar="OUT", help="the page to write")
    parser.add_argument("--perfetto", metavar="OUT", help="the timeline to write, for example run.json")
    parser.add_argument("--step", type=int, metavar="I", help="show step I first (-1: the last; default: the first)")
    parser.add_argument(
        "--stage", default="0", metavar="S", help="number or name of the stage shown first (%(default)s)"
    )
    parser.add_argument("--max-steps", type=int, metavar="N", help="steps of the page at most (2000)")
    parser.add_argument("--language", choices=("en", "zh"), default="en", help="of the page (%(default)s)")
    parser.add_argument("--dark", action="store_true", help="light on dark; else as the reader's system is set")
    parser.add_argument(
        "--mask",
        nargs="+",
        action="extend",
        metavar="PART",
        help="hide parts until somebody asks (m): path, reason, bucket, key, "
        "checklist, deferrals, padding, next, or a stage's name",
    )
    parser.add_argument(
        "--notes",
        metavar="FILE",
        help="a teacher's words beside steps and stages: a text, or .json with texts by "
        '"STEP", "STEP/STAGE", "*/STAGE" or "*"',
    )
    parser.add_argument("--large", action="store_true", help="large type, for a projector")
    parser.add_argument("--redact", action="store_true", help="leave tokens and text out")
    parser.set_defaults(run=export_trace)


def export_trace(arguments: argparse.Namespace) -> int:
    """Write what was asked for."""
    from engine.errors import ConfigError
    from lab.trace import Trace, trace_target

    if arguments.html is None and arguments.perfetto is None:
        message = "say what to write: --html OUT for a page that steps, --perfetto OUT for a timeline, or both"
        raise ConfigError(message)
    targets = {
        way: trace_target(out, what=what, example=example)
        for way, (what, example) in _MADE.items()
        if (out := getattr(arguments, way)) is not None
    }
    _require_apart(targets, arguments)
    trace = Trace.load(arguments.file)
    trace = trace.redact() if arguments.redact else trace
    if "html" in targets:
        targets["html"].write_text(_page(trace, arguments), encoding="utf-8")
    if "perfetto" in targets:
        trace.to_perfetto(targets["perfetto"])
    for target in targets.values():
        print(f"written: {target} ({target.stat().st_size} bytes)")
    return 0


def _require_apart(targets: dict[str, Path], arguments: argparse.Namespace) -> None:
    """Refuse what would write one file over the other, or ask a page's question of a timeline."""
    from engine.errors import ConfigError

    if len(set(targets.values())) < len(targets):
        message = f"--html and --perfetto must be two files, got {arguments.html} for both; name another one"
        raise ConfigError(message)
    given = [f"--{name}" for name in ("mask", "notes", "large") if getattr(arguments, name)]
    if given and "html" not in targets:
        message = f"{', '.join(given)} is for a page, and a timeline has none; add --html OUT"
        raise ConfigError(message)


def _page(trace: "Trace", arguments: argparse.Namespace) -> str:
    from lab.export.page import MOST_STEPS, PageSettings, export_page
    from lab.widgets.lesson import make_lesson, read_notes
    from lab.widgets.places import stage_index, stage_of_text

    lesson = make_lesson(
        lambda number: trace.steps[place_of(trace, number, "a note's step")].step,
        mask=arguments.mask,
        notes=None if arguments.notes is None else read_notes(arguments.notes),
        large=arguments.large,
    )
    settings = PageSettings(
        step=0 if arguments.step is None else place_of(trace, arguments.step),
        stage=stage_index(stage_of_text(arguments.stage)),
        lang=arguments.language,
        dark=arguments.dark,
        most_steps=MOST_STEPS if arguments.max_steps is None else arguments.max_steps,
        lesson=lesson,
    )
    return export_page(trace, settings)

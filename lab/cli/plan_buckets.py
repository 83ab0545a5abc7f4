"""``stepscope plan-buckets``: which batch sizes to capture for real traffic, and what the usual lists would cost.

Does not: count, price or choose (``lab/advice`` does), or capture anything but with ``--measure``.
"""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from lab.cli import replay
from lab.cli.tables import table

if TYPE_CHECKING:
    from lab.advice.advise import Advice, GraphPrice, Kind
    from lab.advice.histogram import StepSizes
    from lab.replay.settings import ReplaySettings

_FILES: Final = "a CSV or JSONL file, or a recorded run (.trace.json.gz)"
_PRICES: Final = {
    "capture_ms": "milliseconds to capture a graph",
    "mib": "MiB of a graph",
    "mib_per_row": "MiB of a graph for each of its rows",
    "ms_per_mib": "what a MiB of memory is worth, in milliseconds",
    "hours": "hours of steps that a start of the engine serves (24): it captures once",
}


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "plan-buckets",
        help="choose batch sizes to capture for real traffic",
        description="Count the batch sizes of a serving trace (replayed in virtual time) or of a recorded run, find "
        "the best list of buckets under a stated cost model, and compare it with the lists that frameworks come with. "
        "The largest legal batch always has a bucket: a framework's list that lacks it is shown with it and, below "
        "that, as shipped; then the best list of the same length.",
    )
    replay.add_settings(parser, files=_FILES)
    parser.add_argument("--max-buckets", type=replay.positive, default=16, metavar="K", help="at most (%(default)s)")
    parser.add_argument("--prefill", action="store_true", help="choose prefill token buckets instead")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--html", metavar="FILE", help="also write a page with decode and prefill buckets")
    for name, what in _PRICES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, metavar="X", help=what)
    parser.add_argument("--measure", metavar="MODEL", help="measure steps and captures with a model on this machine")
    parser.set_defaults(run=run_plan)


def run_plan(arguments: argparse.Namespace) -> int:
    """Print the best list and the others, as tables or JSON."""
    from lab.advice.advise import RULES, advise
    from lab.trace import trace_target

    html = arguments.html  # its place is looked at before the work, not after it
    target = None if html is None else trace_target(html, what="page", example="buckets.html")
    settings, price = _priced(arguments)
    sizes = _sizes(arguments, settings)
    wanted: Kind = "prefill" if arguments.prefill else "decode"
    most = arguments.max_buckets
    advice = advise(sizes, settings.costs, price, most=most, kind=wanted)
    if arguments.json:
        print(json.dumps(advice.report()))
    else:
        _print(advice)
    if target is not None:
        from lab.advice.page import advice_page

        kinds: list[Kind] = [kind for kind in RULES if getattr(sizes, kind)]
        found = [advise(sizes, settings.costs, price, most=most, kind=kind) for kind in kinds]
        target.write_text(advice_page(found), encoding="utf-8")
        print(f"written: {target}", file=sys.stderr)
    return 0


def _priced(arguments: argparse.Namespace) -> "tuple[ReplaySettings, GraphPrice]":
    """Return the settings, and what a graph costs: given, or measured, a given number before a measured one."""
    import dataclasses

    from engine.errors import ConfigError
    from engine.fields import number
    from lab.advice.advise import GraphPrice

    settings, price = replay.settings_of(arguments), GraphPrice()
    if arguments.measure is not None:
        settings, price = _measured(arguments, settings)
    given = {name: value for name in _PRICES if (value := getattr(arguments, name)) is not None}
    for name, value in given.items():
        number(f"--{name.replace('_', '-')}", value, 0.0, 1e9, refusal=ConfigError, low_open=name == "hours")
    if given and arguments.measure is not None:
        given["origin"] = f"{', '.join(given)} given; {price.origin}"
    return settings, dataclasses.replace(price, **given)


def _measured(arguments: argparse.Namespace, settings: "ReplaySettings") -> "tuple[ReplaySettings, GraphPrice]":
    """Put this machine's numbers in place of the default ones."""
    import dataclasses

    from lab.advice.advise import GraphPrice
    from lab.bench.bucket_costs import measure
    from lab.replay.cost_model import parse_costs

    print(f"measuring {arguments.measure} on this machine", file=sys.stderr)
    found = measure(arguments.measure)
    costs = parse_costs([*(f"{name}={value}" for name, value in found.terms.items()), *arguments.cost])
    costs = dataclasses.replace(costs, origin=found.origin)
    price = GraphPrice(capture_ms=found.capture_ms, mib=found.graph_mib, origin=found.origin)
    return dataclasses.replace(settings, costs=costs), price


def _sizes(arguments: argparse.Namespace, settings: "ReplaySettings") -> "StepSizes":
    """Count the steps of a recorded run, or of a serving trace by replaying it."""
    from lab.advice.histogram import sizes_of_recording, sizes_of_replay

    if arguments.trace.endswith(".gz"):
        from lab.trace import Trace

        _refuse_replay_options(arguments)
        return sizes_of_recording(Trace.load(arguments.trace), arguments.trace)
    found = replay.serve(settings, replay.read(arguments, settings, wanted=_FILES))
    replay.warn_of_losses(found)
    if found.is_interrupted:
        print("interrupted: the advice is for the steps so far", file=sys.stderr)
    return sizes_of_replay(found)


def _refuse_replay_options(arguments: argparse.Namespace) -> None:
    """Say which options change nothing, because a recorded run is not served again. Raises: ConfigError."""
    from engine.errors import ConfigError

    plain = argparse.ArgumentParser()
    replay.add_settings(plain)
    defaults = vars(plain.parse_args(["--", arguments.trace]))  # the trace is the same in both
    changed = [name for name, value in defaults.items() if getattr(arguments, name) != value and name != "cost"]
    if changed:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
        message = (
            f"{options} must come with a serving trace (CSV or JSONL), got the recorded run {arguments.trace}, which "
            "has its own limits; those of another engine's log are given to `stepscope trace import`"
        )
        raise ConfigError(message)


def _print(advice: "Advice") -> None:
    from lab.advice.page import cost_sentences

    print(
        f"{advice.sizes.source}: {sum(advice.histogram.values())} {advice.kind} steps, largest legal {advice.largest}"
    )
    for sentence in cost_sentences([advice]):
        print(sentence)
    print()
    print(table(advice.rows()), end="\n\n")
    print(f"capture these: {','.join(map(str, advice.optimal.sizes))}")

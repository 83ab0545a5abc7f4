"""``stepscope trace import``: another engine's step statistics as a trace file, for all views.

Does not: read a format (``lab/imports`` does), or show what it made.
"""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.imports.read_log import ImportSettings

_FORMATS = ("csv", "trtllm-iter-log", "vllm-cudagraph-log")  # lab.imports.read_log.FORMATS, which would import numpy


def add_action(actions: Any) -> None:
    """Describe the action to the parser of ``stepscope trace``."""
    parser = actions.add_parser(
        "import",
        help="make a trace file from another engine's log",
        description="Make a trace file from the step statistics of another engine. What the log does not tell is "
        "missing in every view. Where it does not say how a step ran, the path follows from the bucket list "
        "(--buckets) by this engine's own rule. docs/import.md describes the formats.",
    )
    parser.add_argument("file", help="a log or a CSV file")
    parser.add_argument("--from", dest="form", required=True, choices=_FORMATS, help="its format")
    parser.add_argument("-o", "--out", required=True, help="the trace file to write, for example run.trace.json.gz")
    parser.add_argument("--name", help="shown for the model (the file's own)")
    parser.add_argument("--buckets", metavar="1,2,4", help="batch sizes with a graph, or none (a vLLM log names them)")
    parser.add_argument("--prefill-buckets", metavar="64,128", help="rows with a graph for steps with prompts (none)")
    parser.add_argument("--no-padding", action="store_true", help="only exact batch sizes took a graph")
    parser.add_argument("--max-batch-size", type=int, default=0, metavar="N", help="requests of a step at most")
    parser.add_argument("--max-num-tokens", type=int, default=0, metavar="N", help="rows of a step at most")
    parser.add_argument("--rank", type=int, default=0, metavar="R", help="of a log with several (%(default)s)")
    parser.add_argument("--limit", type=int, metavar="N", help="take the first N steps only")
    parser.set_defaults(run=import_trace)


def import_trace(arguments: argparse.Namespace) -> int:
    """Read, write, and say what came in."""
    from lab.imports.read_log import import_log
    from lab.trace import trace_target

    trace_target(arguments.out)  # before the work, not after it
    trace = import_log(arguments.file, arguments.form, _settings(arguments))
    path = trace.save(arguments.out)
    print(trace.summary())
    print(f"saved: {path} ({path.stat().st_size} bytes)")
    return 0


def _settings(arguments: argparse.Namespace) -> "ImportSettings":
    """Return what the options say. Raises: ConfigError."""
    from engine.errors import ConfigError
    from engine.fields import integer
    from lab.imports.outline_steps import Limits
    from lab.imports.read_log import ImportSettings

    for name in ("max_batch_size", "max_num_tokens", "rank"):
        integer(f"--{name.replace('_', '-')}", getattr(arguments, name), refusal=ConfigError, low=0)
    if arguments.limit is not None:
        integer("--limit", arguments.limit, refusal=ConfigError, low=1)
    limits = Limits(
        buckets=_sizes("--buckets", arguments.buckets),
        prefill_buckets=_sizes("--prefill-buckets", arguments.prefill_buckets) or (),
        padding=not arguments.no_padding,
        max_batch_size=arguments.max_batch_size,
        max_num_tokens=arguments.max_num_tokens,
    )
    return ImportSettings(limits=limits, name=arguments.name, rank=arguments.rank, limit=arguments.limit)


def _sizes(option: str, text: str | None) -> tuple[int, ...] | None:
    from engine.errors import ConfigError

    if text is None or text.strip().lower() == "none":
        return None if text is None else ()
    parts = text.replace(",", " ").split()
    if not parts or not all(
        part.isdecimal() and part.isascii() and len(part) < 9 and 0 < int(part) < 1 << 24 for part in parts
    ):
        message = f"{option} must be numbers above 0 with commas between them, such as 1,2,4, got {text[:80]!r}"
        raise ConfigError(message)
    sizes = tuple(int(part) for part in parts)
    ascending = sorted(set(sizes))
    if list(sizes) != ascending:
        message = (
            f"{option} must be ascending without duplicates, got {_listed(sizes)[:80]}; use {_listed(ascending)[:80]}"
        )
        raise ConfigError(message)
    return sizes


def _listed(sizes: Iterable[int]) -> str:
    return ",".join(map(str, sizes))

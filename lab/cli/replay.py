"""``stepscope trace replay``: a serving trace through the engine's own executor, in virtual time, without a model.

Does not: serve (``lab/replay`` does) or draw (``lab/figures``).
"""

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from lab.cli.tables import table

if TYPE_CHECKING:
    from lab.replay.outcome import Replay
    from lab.replay.serving_trace import ServingTrace
    from lab.replay.settings import ReplaySettings

_POLICIES: Final = ("guaranteed_no_evict", "max_utilization", "static_batch")
_CHUNKINGS: Final = ("none", "fcfs", "equal_progress")
_MOST_REFUSALS: Final = 5  # that are named


def add_action(actions: Any) -> None:
    """Describe the action to the parser of ``stepscope trace``."""
    parser = actions.add_parser(
        "replay",
        help="serve a serving trace (CSV, JSONL) in virtual time, without a model",
        description="Serve a trace of real traffic through the engine's own scheduler, KV ledger and step loop. "
        "Nothing is computed: a stated cost model says how long a step takes. CSV: TIMESTAMP, ContextTokens, "
        "GeneratedTokens. JSONL: timestamp (ms), input_length, output_length, hash_ids (one a block of the prompt).",
    )
    add_settings(parser)
    parser.add_argument("--json", action="store_true", help="print the ten totals as JSON and nothing else")
    parser.add_argument("--html", metavar="FILE", help="also write a page of figures and tables")
    parser.set_defaults(run=run_replay)


def add_settings(parser: Any, *, files: str = "a CSV or JSONL file") -> None:
    """Add the options that say what is served and how; another command takes the same. files: what TRACE may be."""
    parser.add_argument("trace", metavar="TRACE", help=files)
    parser.add_argument("--limit", type=positive, metavar="N", help="serve the first N requests only")
    parser.add_argument("--blocks", type=positive, metavar="N", help="KV blocks of the pool (the whole trace fits)")
    parser.add_argument("--tokens-per-block", type=positive, metavar="N", help="tokens of a block (JSONL 512, CSV 16)")
    parser.add_argument("--max-seq-len", type=positive, metavar="N", help="prompt and answer (the longest request)")
    parser.add_argument("--max-batch-size", type=int, default=256, metavar="N", help="requests a step (%(default)s)")
    parser.add_argument("--max-num-tokens", type=int, default=8192, metavar="N", help="rows a step (%(default)s)")
    parser.add_argument("--policy", choices=_POLICIES, default=_POLICIES[0], help="who may hold blocks (%(default)s)")
    parser.add_argument("--chunking", choices=_CHUNKINGS, default="fcfs", help="of long prompts (%(default)s)")
    parser.add_argument("--overlap", action="store_true", help="lay the next step out before this one is read")
    parser.add_argument(
        "--reuse", action=argparse.BooleanOptionalAction, help="keep blocks for prompts that begin alike (JSONL: yes)"
    )
    parser.add_argument("--speed", type=float, default=1.0, metavar="X", help="arrivals X times as fast (%(default)g)")
    parser.add_argument("--buckets", type=_sizes, metavar="N,N", help="batch sizes with a graph (the engine's list)")
    parser.add_argument("--prefill-buckets", type=_sizes, default=(), metavar="N,N", help="rows with a prefill graph")
    parser.add_argument("--no-padding", action="store_true", help="only exact batch sizes take a graph")
    parser.add_argument(
        "--cost",
        action="append",
        default=[],
        metavar="NAME=US",
        help="replace a term of the cost model: graph.fixed, graph.per_row, graph.per_kv_token, eager.fixed, ...",
    )


def settings_of(arguments: argparse.Namespace) -> "ReplaySettings":
    """Return the settings that the options of ``add_settings`` give. Raises: ConfigError."""
    from lab.replay.cost_model import parse_costs
    from lab.replay.settings import GraphSettings, ReplaySettings

    return ReplaySettings(
        num_blocks=arguments.blocks,
        max_seq_len=arguments.max_seq_len,
        max_batch_size=arguments.max_batch_size,
        max_num_tokens=arguments.max_num_tokens,
        policy=arguments.policy,
        chunking=None if arguments.chunking == "none" else arguments.chunking,
        overlap=arguments.overlap,
        reuse=arguments.reuse,
        speed=arguments.speed,
        graphs=GraphSettings(
            buckets=arguments.buckets,
            prefill_buckets=arguments.prefill_buckets,
            padding=not arguments.no_padding,
        ),
        costs=parse_costs(arguments.cost),
    )


def serve(settings: "ReplaySettings", trace: "ServingTrace") -> "Replay":
    """Replay with a progress bar on stderr, where that is a terminal."""
    from tqdm import tqdm

    from lab.replay.serve import replay

    with tqdm(total=len(trace.requests), unit=" requests", disable=None, file=sys.stderr) as bar:
        return replay(trace, settings.config(trace), settings.costs, progress=bar.update)


def read(
    arguments: argparse.Namespace, settings: "ReplaySettings", *, wanted: str = "a CSV or JSONL file"
) -> "ServingTrace":
    """Read the trace that the options name, and say on stderr what will be served. Raises: TraceError, ConfigError.

    wanted: the files that the command takes, as its errors name them.
    """
    from lab.replay.serving_trace import read_serving_trace

    trace = settings.timed(
        read_serving_trace(
            arguments.trace, limit=arguments.limit, tokens_per_block=arguments.tokens_per_block, wanted=wanted
        )
    )
    for line in settings.sentences(trace):
        print(line, file=sys.stderr)
    return trace


def run_replay(arguments: argparse.Namespace) -> int:
    """Serve, then print the totals, or all tables. An interrupt prints what there is."""
    from lab.trace import trace_target

    html = arguments.html  # its place is looked at before the work, not after it
    target = None if html is None else trace_target(html, what="page", example="replay.html")
    settings = settings_of(arguments)
    trace = read(arguments, settings)
    found = serve(settings, trace)
    warn_of_losses(found)
    if arguments.json:
        print(json.dumps(found.summary()))
    else:
        _print_tables(found)
    if target is not None:
        from lab.replay.page import replay_page

        target.write_text(replay_page(found, settings.sentences(trace)), encoding="utf-8")
        print(f"written: {target}", file=sys.stderr)
    if found.is_interrupted:
        sys.stdout.flush()
        raise KeyboardInterrupt
    return int(found.totals.failed > 0)


def warn_of_losses(found: "Replay") -> None:
    """Name on stderr the first requests that can never run, and the first that failed."""
    from lab.trace_summary import counted

    for refusal in found.refusals[:_MOST_REFUSALS]:
        print(f"refused, {refusal}", file=sys.stderr)
    if len(found.refusals) > _MOST_REFUSALS:
        print(f"refused: {len(found.refusals) - _MOST_REFUSALS} more", file=sys.stderr)
    if found.totals.failed:
        print(f"failed: {counted(found.totals.failed, 'request')}, first {found.totals.first_failure}", file=sys.stderr)


def _print_tables(found: "Replay") -> None:
    from lab.replay.outcome import bucket_rows, path_rows, spread_rows

    for rows in (path_rows(found.columns), bucket_rows(found.columns, found.buckets), spread_rows(found)):
        if rows:
            print(table(rows), end="\n\n")
    for name, value in found.summary().items():
        print(f"{name}: {value}")
    print(f"prompt tokens found in the cache: {int(found.columns['reused'].sum())}")


def positive(text: str) -> int:
    """Take an integer of at least 1 from the command line."""
    value = int(text) if re.fullmatch(r"\s*[+-]?\d{1,18}\s*", text, re.ASCII) else 0
    if value < 1:
        message = f"must be an integer of at least 1, got {text[:80]!r}"
        raise argparse.ArgumentTypeError(message)
    return value


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(positive(part) for part in text.split(","))

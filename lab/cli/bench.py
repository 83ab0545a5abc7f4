"""``stepscope bench``: how fast decoding is on this machine.

Does not: measure (``lab/bench`` does).
"""

import argparse
import json
from typing import Any

from lab.cli.trace import table


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "bench", help="measure decode speed", description="Measure decode speed on this machine."
    )
    parser.set_defaults(wait_policy="ACTIVE")  # a benchmark has the machine to itself
    targets = parser.add_subparsers(title="targets", metavar="TARGET", required=True)
    cpu = targets.add_parser("cpu", help="beside transformers' generate, same weights, same run")
    cpu.add_argument("--model", default="smollm2-135m", help="a name, a .gguf file or a folder (%(default)s)")
    cpu.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8], metavar="N", help="batch sizes (1 4 8)")
    cpu.add_argument("--new-tokens", type=int, default=48, help="tokens of each request (%(default)s)")
    cpu.add_argument("--rounds", type=int, default=3, help="the best round of each counts (%(default)s)")
    cpu.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    cpu.set_defaults(run=run_cpu)
    gpu = targets.add_parser("gpu", help="replayed CUDA graphs beside eager launches")
    gpu.add_argument("--model", default="tiny", help="a name, a .gguf file or a folder (%(default)s)")
    gpu.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8], metavar="N", help="batch sizes (1 4 8)")
    gpu.add_argument("--new-tokens", type=int, default=64, help="tokens of each request (%(default)s)")
    gpu.add_argument("--rounds", type=int, default=3, help="the best round of each counts (%(default)s)")
    gpu.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    gpu.set_defaults(run=run_gpu)
    watch = targets.add_parser("watch", help="what watching costs: no probe, and a light recorder")
    watch.add_argument("--model", default="tiny", help="a name, a .gguf file or a folder (%(default)s)")
    watch.add_argument("--batch", type=int, default=8, metavar="N", help="batch size (%(default)s)")
    watch.add_argument("--steps", type=int, default=50, help="steps of a block (%(default)s)")
    watch.add_argument("--rounds", type=int, default=20, help="blocks of each engine, in turns (%(default)s)")
    watch.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    watch.set_defaults(run=run_watch)


def run_cpu(arguments: argparse.Namespace) -> int:
    """Print decode tokens a second of both, for each batch size."""
    from lab.bench.cpu import CpuBench, measure

    settings = CpuBench(
        model=arguments.model,
        batches=tuple(arguments.batches),
        new_tokens=arguments.new_tokens,
        rounds=arguments.rounds,
    )
    return _report(measure(settings), as_json=arguments.json)


def run_gpu(arguments: argparse.Namespace) -> int:
    """Print decode tokens a second, eager and replayed, for each batch size."""
    from lab.bench.gpu import GpuBench, measure

    settings = GpuBench(
        model=arguments.model,
        batches=tuple(arguments.batches),
        new_tokens=arguments.new_tokens,
        rounds=arguments.rounds,
    )
    return _report(measure(settings), as_json=arguments.json)


def run_watch(arguments: argparse.Namespace) -> int:
    """Print the step time without probe sites, without a probe, and with a light recorder."""
    from lab.bench.watch import WatchBench, measure

    settings = WatchBench(model=arguments.model, batch=arguments.batch, steps=arguments.steps, rounds=arguments.rounds)
    return _report(measure(settings), as_json=arguments.json)


def _report(rows: list[dict[str, Any]], *, as_json: bool) -> int:
    print(json.dumps(rows, indent=2) if as_json else table(rows))
    return 0

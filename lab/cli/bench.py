"""``stepscope bench``: how fast decoding is on this machine.

Does not: measure (``lab/bench`` does).
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from lab.cli.trace import table

_NO_GPU: Final = "needs a CUDA GPU"  # what the engine says of a device that is not there
_ON_THE_TAPE: Final = "graphs are simulated by the CPU tape: a replay runs the same operations as an eager step"


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "bench", help="measure decode speed", description="Measure decode speed on this machine."
    )
    parser.set_defaults(wait_policy="ACTIVE")  # a benchmark has the machine to itself
    targets = parser.add_subparsers(title="targets", metavar="TARGET", dest="target", required=True)
    cpu = targets.add_parser("cpu", help="beside transformers' generate, same weights, same run")
    cpu.add_argument("--model", default="smollm2-135m", help="a name, a .gguf file or a folder (%(default)s)")
    cpu.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8], metavar="N", help="batch sizes (1 4 8)")
    cpu.add_argument("--new-tokens", type=int, default=48, help="tokens of each request (%(default)s)")
    cpu.add_argument("--rounds", type=int, default=3, help="the best round of each counts (%(default)s)")
    cpu.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    cpu.set_defaults(run=run_cpu)
    _add_gpu(targets)
    _add_host(targets)
    _add_overlap(targets)
    watch = targets.add_parser("watch", help="what watching costs: no probe, and a light recorder")
    watch.add_argument("--model", default="tiny", help="a name, a .gguf file or a folder (%(default)s)")
    watch.add_argument("--batch", type=int, default=8, metavar="N", help="batch size (%(default)s)")
    watch.add_argument("--steps", type=int, default=50, help="steps of a block (%(default)s)")
    watch.add_argument("--rounds", type=int, default=20, help="blocks of each engine, in turns (%(default)s)")
    watch.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    watch.set_defaults(run=run_watch)


def _add_gpu(targets: Any) -> None:
    gpu = targets.add_parser("gpu", help="beside transformers' static cache and the memory's limit, random weights")
    _add_generate(gpu, [1, 64])
    gpu.set_defaults(run=run_gpu)


def _add_generate(parser: argparse.ArgumentParser, batches: list[int]) -> None:
    """Add the options of a benchmark of ``LLM.generate`` and of replays alone, over random weights."""
    sizes = " ".join(map(str, batches))
    parser.add_argument(
        "--shapes",
        nargs="+",
        default=["smollm2-135m", "llama-3.1-8b"],
        metavar="NAME",
        help="models of these shapes (smollm2-135m llama-3.1-8b; also tiny, for rehearsals)",
    )
    parser.add_argument("--batches", type=int, nargs="+", default=batches, metavar="N", help=f"batch sizes ({sizes})")
    parser.add_argument("--prompt-len", type=int, default=128, metavar="N", help="tokens of a prompt (%(default)s)")
    parser.add_argument("--new-tokens", type=int, default=128, metavar="N", help="tokens of each request (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds behind each median (%(default)s)")
    parser.add_argument("--replays", type=int, default=100, metavar="N", help="replays of a round (%(default)s)")
    parser.add_argument("--device", default="cuda", help="cuda:N, or cpu for a rehearsal on the tape (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")


def _add_host(targets: Any) -> None:
    host = targets.add_parser("host", help="host microseconds of a decode step by stage, full path and steady path")
    host.add_argument(
        "--shapes", nargs="+", default=[], metavar="NAME", help="random weights (tiny; on a GPU also smollm2-135m)"
    )
    host.add_argument("--batches", type=int, nargs="+", default=[8, 256], metavar="N", help="batch sizes (8 256)")
    host.add_argument("--prompt-len", type=int, default=128, metavar="N", help="tokens of a prompt (%(default)s)")
    host.add_argument("--steps", type=int, default=64, metavar="N", help="steps of either path (%(default)s)")
    host.add_argument("--device", default="auto", help="cpu, cuda or auto (%(default)s)")
    host.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    host.set_defaults(run=run_host)


def _add_overlap(targets: Any) -> None:
    overlap = targets.add_parser("overlap", help="LLM.generate with and without overlap, beside replays alone")
    _add_generate(overlap, [1, 64, 256])
    overlap.add_argument("--profile", action="store_true", help="list the functions of a steady step on stderr")
    overlap.set_defaults(run=run_overlap)


def run_cpu(arguments: argparse.Namespace) -> int:
    """Print decode tokens a second of both, for each batch size."""
    from lab.bench.cpu import CpuBench, measure

    settings = CpuBench(
        model=arguments.model,
        batches=tuple(arguments.batches),
        new_tokens=arguments.new_tokens,
        rounds=arguments.rounds,
    )
    rows = measure(settings)
    _note(_ON_THE_TAPE)
    return _report(rows, as_json=arguments.json)


def run_gpu(arguments: argparse.Namespace) -> int:
    """Print decode tokens a second of both and the share of the limit, for each shape and batch; context on stderr."""
    from lab.bench.gpu import GpuBench, measure

    settings = GpuBench(**_generate_settings(arguments))
    return _run_generate(arguments, lambda device: measure(settings, device=device, note=_note))


def run_overlap(arguments: argparse.Namespace) -> int:
    """Print tokens a second of replays and of generate, for each shape and batch; context on stderr."""
    from lab.bench.overlap import OverlapBench, measure

    settings = OverlapBench(**_generate_settings(arguments), profile=arguments.profile)
    return _run_generate(arguments, lambda device: measure(settings, device=device, note=_note))


def _generate_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of ``_add_generate``, under the names of the benchmarks' settings."""
    lists = {name: tuple(getattr(arguments, name)) for name in ("shapes", "batches")}
    return lists | {name: getattr(arguments, name) for name in ("prompt_len", "new_tokens", "rounds", "replays")}


def _run_generate(arguments: argparse.Namespace, measure: Callable[[str], Iterable[dict[str, Any]]]) -> int:
    """Measure and print; after minutes of it an interrupt still shows what is complete. Raises: ConfigError."""
    from engine.errors import ConfigError

    rows: list[dict[str, Any]] = []
    try:
        rows.extend(measure("cuda" if arguments.device == "auto" else arguments.device))
    except ConfigError as error:
        if _NO_GPU not in str(error):
            raise
        rehearsal = f"`stepscope bench {arguments.target} --device cpu --shapes tiny` rehearses on the tape"
        message = f"{str(error).partition(';')[0]}. Without one there is nothing to measure; {rehearsal}"
        raise ConfigError(message) from error
    except KeyboardInterrupt:
        if rows:
            _report(rows, as_json=arguments.json)
        raise
    return _report(rows, as_json=arguments.json)


def run_host(arguments: argparse.Namespace) -> int:
    """Print the median host time of every stage on both paths, batch by batch, then that of the step loop by its queue.

    Legend and progress go to stderr.
    """
    from lab.bench import schedule
    from lab.bench.host import LAST_STAGE, HostBench, measure
    from lab.bench.schedule import ScheduleBench

    settings = HostBench(
        shapes=tuple(arguments.shapes),
        batches=tuple(arguments.batches),
        prompt_len=arguments.prompt_len,
        steps=arguments.steps,
    )
    rows: list[dict[str, Any]] = []
    shown = 0
    try:
        for row in measure(settings, device=arguments.device, note=_note):
            rows.append(row)
            if row["stage"] == LAST_STAGE and not arguments.json:  # a table for each batch, as soon as it is there
                print(table(rows[shown:]), end="\n\n", flush=True)
                shown = len(rows)
        _note("the step loop alone, CPU us without a model: the same requests again, or one ends and one is let in")
        loop = list(schedule.measure(ScheduleBench()))
        rows.extend(loop)
        if not arguments.json:
            print(table(loop), flush=True)
    finally:  # an interrupt leaves what is complete
        if arguments.json and rows:
            _report(rows, as_json=True)
    return 0


def run_watch(arguments: argparse.Namespace) -> int:
    """Print the step time without probe sites, without a probe, and with a light recorder."""
    from lab.bench.watch import WatchBench, measure

    settings = WatchBench(model=arguments.model, batch=arguments.batch, steps=arguments.steps, rounds=arguments.rounds)
    rows = measure(settings)
    _note(_ON_THE_TAPE)
    return _report(rows, as_json=arguments.json)


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _report(rows: list[dict[str, Any]], *, as_json: bool) -> int:
    """Print rows. A table has one number for the host's time: its sum, where a row has it by stage."""
    if not as_json:
        rows = [{**row, "host_us": row["host_us"]["host"]} if "host_us" in row else row for row in rows]
    print(json.dumps(rows, indent=2) if as_json else table(rows))
    return 0

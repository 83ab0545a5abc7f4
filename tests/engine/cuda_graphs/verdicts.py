"""Run a scenario in a child process, on the tape or on CUDA, and say what became of it.

A verdict is ``ok``, ``refused(type)``, ``raised(type)`` or ``wrong(first row)``. A child of its own, because a CUDA
error poisons its process. Harm is deterministic: storage that a graph should no longer use is kept alive and
refilled with SENTINEL, so that reading it shows.
"""

import dataclasses
import functools
import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path
from unittest import mock

import torch
import torch._dynamo  # torch's meta kernels import it at first use: better once in the fork server than in each child

from engine.device import resolve_device
from engine.errors import GraphError
from tests.engine.cuda_graphs.graph_parts import World

ROOT = Path(__file__).parents[3]
SENTINEL = -77.0
SEVERITY = {"ok": 0, "wrong": 1, "raised": 2, "refused": 2}


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What is done, and the verdict on either machine.

    run returns (what the graph gave, what is right), row by row. difference: why the verdicts differ, "" if they
    do not; the tape is the stricter one then.
    """

    run: Callable[["Machine"], tuple[torch.Tensor, torch.Tensor]]
    tape: str
    cuda: str
    difference: str = ""


class Machine:
    """One of the two machines, with what scenarios need most."""

    def __init__(self, device: str) -> None:
        self.world = World(spec=resolve_device(device, "float32"))
        self.device = self.world.spec.torch_device
        self.backend = self.world.backend
        self.runner = self.world.runner
        self._count = 0

    def persistent(self, tensor: torch.Tensor) -> torch.Tensor:
        """Put a tensor on the device and register it."""
        on_device = tensor.to(self.device)
        self._count += 1
        self.world.registry.register(f"persistent {self._count}", on_device)
        return on_device

    def rows(self, count: int = 4, width: int = 8, seed: int = 0) -> torch.Tensor:
        """Make a persistent matrix of fixed numbers, none of them equal to another."""
        generator = torch.Generator().manual_seed(seed)
        return self.persistent(torch.randn(count, width, generator=generator))

    def capture(self, fn, **options):
        """Run once eagerly, as every warm-up does, then capture."""
        with torch.no_grad():
            fn()
        with self.world.stream.capturing():
            return self.backend.capture(fn, **options)

    def replay(self, graph) -> torch.Tensor:
        """Replay and read the outputs."""
        graph.replay()
        self.world.stream.synchronize()
        return graph.outputs


def severity(verdict: str) -> int:
    """0 nothing seen, 1 wrong numbers, 2 stopped."""
    return SEVERITY[verdict.split("(", maxsplit=1)[0]]


def judge(run: Callable[[Machine], tuple[torch.Tensor, torch.Tensor]], device: str) -> str:
    """Run a scenario here and turn its outcome into a verdict."""
    try:
        with torch.no_grad():
            got, right = run(Machine(device))
    except GraphError as error:
        return f"refused({type(error).__name__})"
    except Exception as error:
        return f"raised({type(error).__name__})"
    same = torch.isclose(got.double(), right.double(), rtol=1e-4, atol=1e-5).reshape(len(got), -1).all(1)
    wrong = (~same).nonzero().flatten().tolist()
    return f"wrong({wrong[0]})" if wrong else "ok"


def _report(name: str, device: str, answer) -> None:
    from tests.engine.cuda_graphs.scenarios import SCENARIOS

    answer.send(judge(SCENARIOS[name].run, device))


@functools.cache
def _server():
    """Start the fork server, which imports torch once for all children."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.engine.cuda_graphs.scenarios"])
    with mock.patch.dict(os.environ, PYTHONPATH=str(ROOT)):  # or the server could not import the table
        forkserver.ensure_running()
    return context


def judge_all(names: Iterable[str], device: str, *, at_once: int) -> dict[str, str]:
    """Run scenarios of the table, several at once, and return their verdicts by name."""
    _server()  # before there are threads
    names = list(names)
    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip(names, pool.map(lambda name: judge_in_child(name, device), names), strict=True))


def judge_in_child(name: str, device: str) -> str:
    """Run a scenario of the table in a process of its own."""
    context = _server()
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_report, args=(name, device, theirs))
    child.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(120) else "raised(Timeout)"
    except EOFError:
        return "raised(Crash)"
    finally:
        child.kill()
        child.join()
        ours.close()

"""Run faults in processes of their own: a broken engine may spoil its process, and on CUDA it may spoil the device.

One server process gets warm once (``warm_server.py``); every run is a fork of it, with a time limit. A run that
crashes or hangs is reported as that and detects nothing.

Ctrl-C reaches every process of a terminal, and is the parent's alone: it ends the others, which stay silent.

Does not: decide what a run means (``examine.py``) or show progress.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any, Final

from lab.faults.catalogue import find_fault
from lab.faults.examine import Outcome, examine

TIME_LIMIT: Final = 180.0  # seconds for one run; the first one on a CUDA machine compiles kernels
_ROOT: Final = Path(__file__).parents[2]
_saved_stderr: list[int] = []  # in a fork that has no task yet: where its stderr goes to


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One run to do: the fault's name and the guards."""

    name: str
    guards: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Child:
    task: Task
    process: Any
    deadline: float


def run_in_children(
    tasks: Sequence[Task], device: str, *, at_once: int | None = None, time_limit: float = TIME_LIMIT
) -> Generator[tuple[Task, Outcome]]:
    """Yield each task with its outcome, in the order in which they finish. device: cpu or cuda. Units: seconds.

    Children are killed when the caller stops early.
    """
    context = _server()
    waiting, children = list(reversed(tasks)), dict[Any, _Child]()
    at_once = at_once or max(1, min(8, os.cpu_count() or 1))
    try:
        while waiting or children:
            while waiting and len(children) < at_once:
                answer, child = _start(context, waiting.pop(), device, time_limit)
                children[answer] = child
            for answer in connection.wait(list(children), timeout=1.0):
                child = children.pop(answer)
                yield child.task, _read(answer, child)
            for answer, child in [pair for pair in children.items() if pair[1].deadline < time.monotonic()]:
                del children[answer]
                _end(answer, child)
                yield child.task, Outcome(child.task.guards, error=f"no answer within {time_limit:.0f} s")
    finally:
        for answer, child in children.items():
            _end(answer, child)


def _server() -> Any:
    """Start the server that has torch imported, once a process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "lab.faults.warm_server"])
    resource_tracker.ensure_running()  # it unblocks Ctrl-C when it starts, so it starts first
    with _environment("PYTHONPATH", str(_ROOT)), _ctrl_c_later():  # a checkout that isn't installed is importable too
        forkserver.ensure_running()
    return context


@contextlib.contextmanager
def _ctrl_c_later() -> Generator[None]:
    """Hold Ctrl-C back; a process that is started meanwhile holds it back for ever."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def silence() -> None:
    """Send stderr of this process and its forks to nowhere, each until it has its task (for the warm server).

    A parent that went away in the middle of a start is no news.
    """
    sys.stderr.flush()
    _saved_stderr.append(os.dup(2))
    _redirect_stderr(os.open(os.devnull, os.O_WRONLY))


def _redirect_stderr(file: int) -> None:
    os.dup2(file, 2)
    os.close(file)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Generator[None]:
    before = os.environ.get(name)
    os.environ[name] = value if before is None else f"{value}{os.pathsep}{before}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _start(context: Any, task: Task, device: str, time_limit: float) -> tuple[Any, _Child]:
    answer, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(task, device, theirs), daemon=True)
    process.start()
    theirs.close()
    return answer, _Child(task, process, time.monotonic() + time_limit)


def _work(task: Task, device: str, answer: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where another server than ours was running already
    if _saved_stderr:
        _redirect_stderr(_saved_stderr.pop())
    try:
        outcome = examine(find_fault(task.name), device, task.guards)
    except Exception as error:
        outcome = Outcome(task.guards, error=f"{type(error).__name__}: {error}")
    with contextlib.suppress(BrokenPipeError):  # the parent has gone, and nobody else wants to know
        answer.send(outcome)


def _read(answer: Any, child: _Child) -> Outcome:
    try:
        return answer.recv()
    except EOFError:
        child.process.join()
        return Outcome(child.task.guards, error=f"the run's process ended with status {child.process.exitcode}")
    finally:
        _end(answer, child)


def _end(answer: Any, child: _Child) -> None:
    child.process.kill()
    child.process.join()
    answer.close()

"""Two ways to ask a learner's function about a case: in this process, or in a child with limits.

Both take a case as text, so that the function sees fresh lists each time, and both return plain JSON, so that an answer
is what it says: a subclass of int with its own ``==`` arrives as the integer it holds.

Does not: judge an answer, or hold an expected one.
"""

import contextlib
import dataclasses
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, Self, cast

import lab.exercises.child as child_module
from lab.exercises.exercise import Case, Exercise
from lab.exercises.shape import canonical

_HEAD: Final = struct.Struct(">I")
_MOST: Final = 4 << 20  # bytes of one message from a child
_GRACE: Final = 40.0  # wall seconds beside the CPU time of a case: the machine may be busy
_LIMITS: Final = {"AS": 2 << 30, "CPU": 60, "FSIZE": 1 << 20, "NOFILE": 32, "CORE": 0, "NPROC": 0}
_CHILD: Final = Path(child_module.__file__)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case. kind: value, error, slow (its CPU time is used up) or dead (the process ended)."""

    kind: str
    value: Any = None
    text: str = ""
    error_type: str = ""
    printed: str = ""

    @property
    def mark(self) -> str:
        """The outcome as text, for comparing with that of a wrong solution."""
        return canonical(self.value) if self.kind == "value" else f"!{self.error_type or self.kind}"


class Caller(Protocol):
    """Something that answers cases."""

    def __call__(self, case: Case) -> Outcome:
        """Return what the function makes of the case."""
        ...


def as_outcome(reply: dict[str, Any], seconds: float) -> Outcome:
    """Read a child's reply."""
    printed = str(reply.get("printed", ""))
    if "slow" in reply:
        return Outcome("slow", text=f"used more than {seconds:g} s of CPU time on one case", printed=printed)
    if "error" in reply:
        return Outcome("error", text=f"raised {reply['error']}", error_type=str(reply["kind"]), printed=printed)
    return Outcome("value", value=reply["value"], printed=printed)


class LocalCaller:
    """Calls a function object here: a notebook cell's, whose prints and debugger should work."""

    def __init__(self, exercise: Exercise, function: Callable[..., Any]) -> None:
        """Load the exercise's world once."""
        world = exercise.world
        self._run = child_module.direct if world is None else child_module.run_of_world(world)
        self._function = function
        self._seconds = exercise.meta.seconds

    def __call__(self, case: Case) -> Outcome:
        """Call the function on a copy of the case."""
        reply = child_module.answer_case(self._run, self._function, canonical(case), self._seconds)
        return as_outcome(reply, self._seconds)

    def close(self) -> None:
        """Nothing is held."""


class ChildCaller:
    """Calls a source text's function in a child process; a context manager.

    A child that died or gave no answer is replaced when the next case comes, at most ``MAX_CHILDREN`` times. After
    ``MAX_SLOW`` cases that used up their time nothing more is asked: all the rest counts as slow too.
    """

    MAX_CHILDREN: Final = 12
    MAX_SLOW: Final = 3

    def __init__(self, exercise: Exercise, source: str, *, rule: str | None = None) -> None:
        """rule: set as RULE for this project's own answers; a learner's answer gets None."""
        self._exercise = exercise
        self._source = source
        self._rule = rule
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: str | None = None
        self._number = 0
        self._num_children = 0
        self._num_slow = 0
        self._broken: Outcome | None = None  # why the source itself gives no function
        self.missing_limits = ""

    def __call__(self, case: Case) -> Outcome:
        """Send the case; start a child first where there is none."""
        if self._process is None and self._broken is None:
            self._start()
        if self._broken is not None:
            return self._broken
        reply = self._exchange({"case": canonical(case)})
        outcome = reply if isinstance(reply, Outcome) else as_outcome(reply, self._exercise.meta.seconds)
        if outcome.kind == "slow":
            self._num_slow += 1
            self._broken = outcome if self._num_slow == self.MAX_SLOW else None
        return outcome

    def _start(self) -> None:
        if self._num_children == self.MAX_CHILDREN:
            self._broken = Outcome("dead", text=f"the process ended {self.MAX_CHILDREN} times; it is not started again")
            return
        self._num_children += 1
        is_root = os.geteuid() == 0
        self._folder = tempfile.mkdtemp(prefix="stepscope-answer-")
        if is_root:
            with contextlib.suppress(OSError):
                os.chown(self._folder, child_module.NOBODY, child_module.NOBODY)
        self._process = subprocess.Popen(  # noqa: S603 (this Python and our own file)
            [sys.executable, "-P", "-s", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PATH": os.defpath, "PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        meta = self._exercise.meta
        setup = {"source": self._source, "entry": meta.entry, "rule": self._rule, "world": self._exercise.world}
        setup |= {"modules": meta.modules, "seconds": meta.seconds, "limits": _LIMITS, "nobody": is_root}
        reply = self._exchange(setup)
        if isinstance(reply, Outcome):
            self._broken = dataclasses.replace(reply, text=f"while the code was loaded: {reply.text}")
            return
        self.missing_limits = str(reply["missing"])
        if "error" in reply or "slow" in reply:
            outcome = as_outcome(reply, meta.seconds)
            self._broken = dataclasses.replace(outcome, text=f"could not be loaded: {outcome.text}")
            self._stop()

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any] | Outcome:
        """Send one message and return the reply, or why there is none; then the child is gone."""
        process = self._process
        assert process is not None
        self._number = int.from_bytes(os.urandom(6))
        try:
            data = canonical({**message, "number": self._number}).encode()
            assert process.stdin is not None
            process.stdin.write(_HEAD.pack(len(data)) + data)
            process.stdin.flush()
            reply = self._receive(time.monotonic() + self._exercise.meta.seconds + _GRACE)
        except TimeoutError:
            self._stop()
            return Outcome("slow", text=f"gave no answer within {self._exercise.meta.seconds + _GRACE:g} s")
        except (OSError, EOFError):
            self._stop()
            return Outcome("dead", text="ended its own process (or was ended by a limit on memory, CPU time or files)")
        except ValueError:
            reply = {}
        if reply.get("number") != self._number:
            self._stop()
            return Outcome("dead", text="wrote something else where its answer belongs")
        return reply

    def _receive(self, until: float) -> dict[str, Any]:
        import json

        size = _HEAD.unpack(self._bytes(_HEAD.size, until))[0]
        if size > _MOST:
            message = "too long"
            raise ValueError(message)
        reply = json.loads(self._bytes(size, until))
        return cast("dict[str, Any]", reply) if isinstance(reply, dict) else {}

    def _bytes(self, count: int, until: float) -> bytes:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        number = process.stdout.fileno()
        data = b""
        while len(data) < count:
            left = until - time.monotonic()
            if left <= 0 or not select.select([number], [], [], left)[0]:
                raise TimeoutError
            piece = os.read(number, count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def _stop(self) -> None:
        """End the child and all that it started, and remove its folder."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._process.wait()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def close(self) -> None:
        """End the child."""
        self._stop()

    def __enter__(self) -> Self:
        """Return the caller."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

"""The process in which a learner's function runs: cases in, plain answers out, and nothing else.

Run as a script (``python -P -s child.py``) by ``callers.ChildCaller``; ``answer_case`` also serves calls in the same
process. It holds no expected value and no check. As root it imports the modules that answers may use, then becomes
*nobody*, then sets its limits: limits on processes do not bind root. Answers carry the request's own number, so that
a line which a learner's code writes is not taken for one.

Does not: import anything of this project, nor guard against a determined attacker; it stops accidents and the
usual tricks.
"""

import contextlib
import importlib
import importlib.abc
import io
import json
import os
import re
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType, ModuleType
from typing import Any, Final

MAX_ANSWER: Final = 1 << 20  # bytes of an answer
MAX_PRINTED: Final = 4000  # characters of what a function printed
NOBODY: Final = 65534
SOURCE_NAME: Final = "<answer>"
ENGINE: Final = "an answer may not import {name}: it holds the engine's own function; write it yourself"
LISTED: Final = "an answer may import {listed}; not {name}"

_HEAD = struct.Struct(">I")


class SlowError(BaseException):
    """One case used up its time. No Exception, so that a learner's handler does not swallow it."""


class Printed(io.StringIO):
    """Where prints go: the beginning is kept, the rest is counted and dropped."""

    def write(self, text: str) -> int:
        """Keep what fits."""
        room = MAX_PRINTED - self.tell()
        super().write(text[: max(0, room)])
        return len(text)


class Gate(importlib.abc.MetaPathFinder):
    """Refuses modules that answers may not import, when they are not loaded already."""

    def __init__(self, modules: Sequence[str]) -> None:
        """modules: the listed ones."""
        self.modules = modules
        self.is_closed = False

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Refuse, or leave the search to others."""
        name = fullname.partition(".")[0]
        if name in ("engine", "lab"):
            raise ImportError(ENGINE.format(name=name))
        if self.is_closed and name not in self.modules:
            raise ImportError(LISTED.format(listed=", ".join(self.modules), name=name))


def plain(value: object) -> Any:
    """Return the value as JSON holds it: subclasses, tuples, numpy's numbers become plain ones. Raises: TypeError."""
    text = json.dumps(value, default=_as_plain)
    if len(text) > MAX_ANSWER:
        message = f"returned an answer of {len(text)} characters, at most {MAX_ANSWER} are read"
        raise TypeError(message)
    return json.loads(text)


def _as_plain(value: Any) -> Any:
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    message = f"returned a {type(value).__name__}; return integers, strings, lists and dictionaries"
    raise TypeError(message)


def direct(function: Callable[..., Any], case: dict[str, Any]) -> Any:
    """Run an exercise without a world: the case's entries are the arguments."""
    return function(**case)


def run_of_world(source: str) -> Callable[..., Any]:
    """Load a world's source and return its ``run(function, case)``."""
    module = ModuleType("world")
    sys.modules["world"] = module
    exec(compile(source, "world.py", "exec"), module.__dict__)  # noqa: S102 (the exercise's own file)
    return module.run


def load_answer(source: str, entry: str, rule: str | None = None) -> Callable[..., Any]:
    """Run a learner's source and return the function. rule: set as RULE, which this project's own answers read."""
    namespace: dict[str, Any] = {"__name__": "answer"}
    if rule is not None:
        namespace["RULE"] = rule
    exec(compile(source, SOURCE_NAME, "exec"), namespace)  # noqa: S102 (running it is the purpose)
    function = namespace.get(entry)
    if not callable(function):
        message = f"there is no function named {entry}"
        raise TypeError(message)
    return function


def answer_case(
    run: Callable[..., Any], function: Callable[..., Any], case_text: str, seconds: float
) -> dict[str, Any]:
    """Call the function on a fresh copy of the case and return its outcome: one of value, error, slow; and prints."""
    printed = Printed()
    outcome: dict[str, Any]
    try:
        with contextlib.redirect_stdout(printed), _time_limit(seconds):
            outcome = {"value": plain(run(function, json.loads(case_text)))}
    except SlowError:
        outcome = {"slow": seconds}
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # SystemExit too
        outcome = {"error": describe(error), "kind": type(error).__name__}
    return {**outcome, "printed": printed.getvalue()}


@contextlib.contextmanager
def _time_limit(seconds: float) -> Any:
    """Raise SlowError after so much CPU time; a thread that may not set signals has no limit."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise SlowError

    try:
        before = signal.signal(signal.SIGPROF, stop)
    except (ValueError, AttributeError):  # not the main thread; or a system without such signals (Windows)
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def describe(error: BaseException) -> str:
    """Say an exception in one line, with the learner's line that it came from."""
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")[: MAX_PRINTED // 4]
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)  # an address differs from run to run
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == SOURCE_NAME or "ipykernel" in frame.filename or frame.filename.startswith("<ipython"):
            return f"{text} (line {frame.lineno} of your code)"
    return text


def _confine(limits: dict[str, int], *, nobody: bool) -> str:
    """Become nobody if asked to, set every limit, and return what could not be set."""
    import resource

    missing: list[str] = []
    if nobody:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        except OSError:
            missing.append("becoming nobody")
    for name, amount in limits.items():
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (amount, amount))
        except (OSError, ValueError, AttributeError):
            missing.append(f"RLIMIT_{name}")
    return ", ".join(missing)


def _read(stream: io.BufferedReader) -> dict[str, Any] | None:
    head = stream.read(_HEAD.size)
    return json.loads(stream.read(_HEAD.unpack(head)[0])) if len(head) == _HEAD.size else None


def _write(stream: io.BufferedWriter, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    stream.write(_HEAD.pack(len(data)) + data)
    stream.flush()


def _streams() -> tuple[io.BufferedReader, io.BufferedWriter]:
    """Keep the two pipes under other numbers, and let 0, 1 and 2 lead nowhere."""
    source, target = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    return os.fdopen(source, "rb"), os.fdopen(target, "wb")


def main() -> None:
    """Set up once, then answer case after case until the pipe closes."""
    source, target = _streams()
    setup = _read(source)
    if setup is None:
        return
    gate = Gate(setup["modules"])
    sys.meta_path.insert(0, gate)
    for name in setup["modules"]:
        importlib.import_module(name)
    run = direct if setup["world"] is None else run_of_world(setup["world"])
    missing = _confine(setup["limits"], nobody=setup["nobody"])
    gate.is_closed = True
    seconds: float = setup["seconds"]
    reply: dict[str, Any] = {"number": setup["number"], "missing": missing}
    function: Callable[..., Any] | None = None
    try:
        with contextlib.redirect_stdout(Printed()), _time_limit(seconds):
            function = load_answer(setup["source"], setup["entry"], setup["rule"])
    except SlowError:
        reply["slow"] = seconds
    except BaseException as error:
        reply.update(error=describe(error), kind=type(error).__name__)
    _write(target, reply)
    while function is not None and (request := _read(source)) is not None:
        outcome = answer_case(run, function, request["case"], seconds)
        _write(target, {**outcome, "number": request["number"]})


if __name__ == "__main__":
    main()

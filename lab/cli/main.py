"""The command line: ``stepscope COMMAND``. One file a command; this one only finds it and reports its errors.

Every error that a user can cause is one line on stderr and exit status 2. Ctrl-C is exit status 130, without a
traceback. A command's own work is imported when it runs, so that ``--help`` is instant.

A reader that goes away (head, less) ends a command, and changes no verdict: a command that judges sets
``arguments.status`` before it prints, and that is the exit status.

Does not: do any command's work, or catch what is a bug of ours.
"""

import argparse
import contextlib
import io
import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import Final

from engine.errors import StepscopeError
from lab.cli import (
    bench,
    check,
    doctor,
    faults,
    grade,
    lab,
    models,
    plan_buckets,
    release,
    report,
    run,
    sync_nbgrader,
    trace,
)
from lab.cli.wording import in_options

ERROR: Final = 2
INTERRUPTED: Final = 130

_CLASSROOM: Final = (release, grade, report, sync_nbgrader)
_COMMANDS: Final = (run, models, trace, lab, check, faults, plan_buckets, bench, doctor, *_CLASSROOM)


class _Version(argparse.Action):
    """Print the installed version, which is looked up only when somebody asks, and end."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and end")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata

        print(f"stepscope {importlib.metadata.version('stepscope')}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of every command."""
    parser = argparse.ArgumentParser(
        prog="stepscope",
        description="An LLM inference engine that you can step through.",
        epilog="`stepscope COMMAND --help` describes a command.",
    )
    parser.add_argument("--version", action=_Version)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    _settle_streams()
    try:
        return _run(argv)
    finally:
        _flush()


def _run(argv: Sequence[str] | None) -> int:
    arguments = argparse.Namespace(status=0)
    try:
        build_parser().parse_args(argv, arguments)
        # Threads that spin between the layers of a step lose badly to other programs on the machine; asleep they cost a
        # tenth. OpenMP reads this when torch is imported, which no command has done yet.
        os.environ.setdefault("OMP_WAIT_POLICY", getattr(arguments, "wait_policy", "PASSIVE"))
        arguments.status = arguments.run(arguments)
        sys.stdout.flush()
        return arguments.status
    except StepscopeError as error:
        _complain(f"error: {in_options(str(error), arguments)}")
        return ERROR
    except KeyboardInterrupt:
        if argv is None:  # a second Ctrl-C would only make what Python tidies at exit print tracebacks
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        if not _reader_is_gone():
            raise  # a pipe of the command's own
        return arguments.status
    except (OSError, UnicodeEncodeError) as error:
        _complain(f"error: cannot write the output: {getattr(error, 'strerror', None) or error}")
        return ERROR


def _reader_is_gone() -> bool:
    """Whether the other end of stdout or stderr is closed."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a stream that is no file
            poll.register(stream.fileno(), 0)
    return bool(poll.poll(0))


def _complain(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # whoever read stderr has gone; the exit status still tells
        print(f"stepscope: {text}", file=sys.stderr)


def _flush() -> None:
    """Write what is left; where that fails, it was said already, and Python would say it again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _settle_streams() -> None:
    """Let every text be written: escaped where the terminal's encoding lacks it, to nowhere where the caller closed it.

    Python has None for a closed stream, and the first write would fail.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 (for the process's life)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())

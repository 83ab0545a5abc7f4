"""The command line: ``stepscope COMMAND``. One file a command; this one only finds it and reports its errors.

Every error that a user can cause is one line on stderr and exit status 2. Ctrl-C is exit status 130, without a
traceback. A command's own work is imported when it runs, so that ``--help`` is instant.

Does not: do any command's work, or catch what is a bug of ours.
"""

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Final

from engine.errors import StepscopeError
from lab.cli import bench, doctor, faults, lab, models, run, trace

ERROR: Final = 2
INTERRUPTED: Final = 130

_COMMANDS: Final = (run, models, trace, lab, faults, bench, doctor)


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
        arguments = build_parser().parse_args(argv)
        # Threads that spin between the layers of a step lose badly to other programs on the machine; asleep they cost a
        # tenth. OpenMP reads this when torch is imported, which no command has done yet.
        os.environ.setdefault("OMP_WAIT_POLICY", getattr(arguments, "wait_policy", "PASSIVE"))
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except StepscopeError as error:
        print(f"stepscope: error: {_worded(error)}", file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print("stepscope: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, UnicodeEncodeError) as error:
        print(f"stepscope: error: cannot write the output: {error}", file=sys.stderr)
        return ERROR


def _worded(error: StepscopeError) -> str:
    """Return the error in one line, with the engine's arguments that a hint names written as options."""
    text = " ".join(str(error).split())
    return re.sub(r"device='([a-z]+)'", r"--device \1", text)


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

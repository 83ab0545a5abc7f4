"""``stepscope lab``: JupyterLab on walkthrough 01, rooted in the checkout.

Does not: fetch a model (``stepscope models pull``), or build the walkthroughs.
"""

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from engine.errors import ConfigError


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "lab",
        help="open the walkthroughs in JupyterLab",
        description="Start JupyterLab on walkthrough 01, rooted in the checkout.",
    )
    parser.add_argument("--no-browser", action="store_true", help="start the server only, and print its address")
    parser.add_argument("--port", type=int, default=8888, help="the next free one is taken if it is not (%(default)s)")
    parser.set_defaults(run=run)


def checkout() -> Path:
    """Return the folder that holds the walkthroughs. Raises: ConfigError outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not any((root / "walkthroughs").glob("*.ipynb")):
        message = (
            f"the walkthroughs lie in a checkout of the repository, and {root} has no walkthroughs/*.ipynb; clone it "
            f"and run `make lab` there"
        )
        raise ConfigError(message)
    return root


def server_command(root: Path, *, port: int, no_browser: bool, is_root: bool) -> list[str]:
    """Return the command that starts the server."""
    first = min((root / "walkthroughs").glob("01_*.ipynb"))
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={root}", f"--ServerApp.port={port}"]
    # The default address, unlike a file argument, is also in the address that --no-browser prints.
    command += [f"--LabApp.default_url=/lab/tree/{first.relative_to(root).as_posix()}", "--LabApp.news_url="]
    if no_browser:
        command.append("--no-browser")
    if is_root:
        command.append("--allow-root")  # a container's only user is often root
    return command


def run(arguments: argparse.Namespace) -> int:
    """Become the JupyterLab server."""
    root = checkout()
    if importlib.util.find_spec("jupyterlab") is None:
        message = "JupyterLab is not installed in this Python; run `make setup`, or `pip install jupyterlab`"
        raise ConfigError(message)
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    command = server_command(root, port=arguments.port, no_browser=arguments.no_browser, is_root=is_root)
    os.chdir(root)
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 (our own interpreter, so that signals reach the server itself)

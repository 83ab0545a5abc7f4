"""Each walkthrough's source runs from the first cell to the last, in time, on the model that it is about."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "walkthroughs/src").glob("*.py"))
MAX_SECONDS = 60

pytestmark = [pytest.mark.notebooks, pytest.mark.smollm2]


def _builder():
    spec = importlib.util.spec_from_file_location("walkthroughs_build", ROOT / "walkthroughs/build.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _text(notebook):
    parts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            parts.append(output.get("text", ""))
            parts.append("".join(output.get("data", {}).get("text/plain", "")))
    return "\n".join(parts)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.stem)
def test_a_walkthrough_runs_within_a_minute(path):
    builder = _builder()
    notebook = builder.read_source(path)
    seconds = builder.execute(notebook)
    builder.clean(notebook)
    assert seconds < MAX_SECONDS
    assert "smollm2-135m" in _text(notebook)


def test_walkthrough_01_shows_each_path():
    builder = _builder()
    notebook = builder.read_source(ROOT / "walkthroughs/src/01_one_step_ten_stages.py")
    builder.execute(notebook)
    text = _text(notebook)
    for word in ("capture", "replay", "eager", "HAS_CONTEXT_UNPROMOTED", "bucket"):
        assert word in text, word

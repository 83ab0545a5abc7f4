"""Built walkthroughs are small, self-contained, free of widget state and built from the source beside them."""

import base64
import hashlib
import html
import json
import re
import struct
import zlib

import pytest

from tests.house.gates import ROOT

NOTEBOOKS = sorted((ROOT / "walkthroughs").glob("*.ipynb"))
SOURCES = sorted((ROOT / "walkthroughs/src").glob("*.py"))
MAX_BYTES = 300_000
MAX_PICTURE_BYTES = 50_000
MAX_CODE_CELLS = 12
MAX_CELL_LINES = 12
WITHOUT_STEPPER = ("13_choosing_buckets", "run_a_class")
PACKED = re.compile(r'atob\("([A-Za-z0-9+/=]+)"\)')
EXTERNAL = re.compile(r"""(?:src|href)\s*=\s*["']?\s*(?:https?:)?//|url\(\s*["']?https?:|from\s+["']https?:""")


def _load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def _code_cells(path):
    return [cell for cell in _load(path)["cells"] if cell["cell_type"] == "code"]


def _outputs(path):
    return [output for cell in _code_cells(path) for output in cell["outputs"]]


def _pages(path):
    """Return the pages that the frames carry deflated."""
    frames = ["".join(output.get("data", {}).get("text/html", "")) for output in _outputs(path)]
    packed = [one for frame in frames for one in PACKED.findall(html.unescape(frame))]
    return [zlib.decompress(base64.b64decode(one)).decode() for one in packed]


def test_every_source_has_its_notebook():
    assert [p.stem for p in SOURCES] == [p.stem for p in NOTEBOOKS]
    assert SOURCES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_carries_no_widget_state(path):
    assert "widgets" not in _load(path)["metadata"]
    kinds = {kind for output in _outputs(path) for kind in output.get("data", {})}
    assert not [kind for kind in kinds if "widget" in kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_small(path):
    assert path.stat().st_size <= MAX_BYTES
    cells = _code_cells(path)
    assert len(cells) <= MAX_CODE_CELLS
    assert max(len(cell["source"]) for cell in cells) <= MAX_CELL_LINES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_loads_nothing_from_elsewhere_and_shows_no_error(path):
    outputs = _outputs(path)
    assert not EXTERNAL.findall(json.dumps(outputs).replace('\\"', '"'))
    assert not [found for page in _pages(path) for found in EXTERNAL.findall(page)]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert outputs


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_was_built_from_its_source(path):
    source = (path.parent / "src" / f"{path.stem}.py").read_bytes()
    assert _load(path)["metadata"]["stepscope"]["source_sha256"] == hashlib.sha256(source).hexdigest(), (
        "the source changed since the notebook was built: make notebooks"
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_stepper_has_a_page_and_a_small_eight_bit_screenshot_of_it(path):
    kinds = [output.get("data", {}) for output in _outputs(path)]
    pictures = [base64.b64decode(data["image/png"]) for data in kinds if "image/png" in data]
    assert len(pictures) == len(_pages(path)) == (path.stem not in WITHOUT_STEPPER)
    for picture in pictures:
        width, height, bits, colours = struct.unpack(">IIBB", picture[16:26])
        assert len(picture) <= MAX_PICTURE_BYTES
        assert (bits, colours) == (8, 3), "8 bits and a palette, as the build's screenshots have: make notebooks"
        assert width > 800
        assert height > 600

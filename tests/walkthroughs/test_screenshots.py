"""The pictures of built notebooks: which output they replace, how small they are, and what is on them."""

import importlib.util
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import numpy as np
import pytest
from PIL import Image

from lab.widgets import static
from tests.lab.sample_steps import sample_trace

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def screenshots():
    spec = importlib.util.spec_from_file_location("walkthroughs_screenshots", ROOT / "walkthroughs/screenshots.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _png(pixels):
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, format="PNG")
    return target.getvalue()


def test_a_picture_gets_a_palette_and_keeps_its_size(screenshots):
    pixels = np.zeros((40, 70, 3), np.uint8)
    pixels[:, 35:] = (0, 114, 178)
    picture = Image.open(io.BytesIO(screenshots.eight_bits(_png(pixels))))
    assert (picture.size, picture.mode) == ((70, 40), "P")
    assert np.array_equal(np.array(picture.convert("RGB")), pixels)


def test_a_picture_that_is_too_large_gets_fewer_colours(screenshots):
    rng = np.random.default_rng(0)
    fine = rng.integers(0, 256, (200, 300, 3), dtype=np.uint8)
    few = Image.open(io.BytesIO(screenshots.eight_bits(_png(fine))))
    assert len(few.getcolors()) < screenshots.COLOURS[0]


def test_a_rare_colour_is_still_there_among_few(screenshots, monkeypatch):
    monkeypatch.setattr(screenshots, "COLOURS", (16,))
    greys = np.arange(300, dtype=np.uint8) % 200 + 55
    pixels = np.broadcast_to(greys[None, :, None], (200, 300, 3)).copy()
    pixels[0, :6] = (168, 67, 0)
    picture = Image.open(io.BytesIO(screenshots.eight_bits(_png(pixels)))).convert("RGB")
    assert np.abs(np.array(picture)[0, :6].astype(int) - (168, 67, 0)).max() < 10


def _cell(*bundles):
    cell = nbformat.v4.new_code_cell("show(trace)")
    cell.outputs = [nbformat.v4.new_output("display_data", data=dict(bundle)) for bundle in bundles]
    return cell


def test_only_a_picture_with_a_frame_in_its_cell_is_replaced(screenshots, monkeypatch):
    shown = static.outputs(sample_trace(4), 1, 4, "en")
    notebook = nbformat.v4.new_notebook(cells=[_cell(*shown), _cell(shown[0]), nbformat.v4.new_markdown_cell("words")])
    monkeypatch.setattr(screenshots, "take", lambda page, frame: b"a picture")
    monkeypatch.setattr(screenshots, "CHROMIUM", __file__)
    monkeypatch.setattr(screenshots, "camera", _nothing_to_start)
    assert screenshots.replace_pictures(notebook) == 1
    assert notebook.cells[0].outputs[0].data["image/png"] == "YSBwaWN0dXJl"
    assert notebook.cells[1].outputs[0].data["image/png"] == shown[0]["image/png"]


class _nothing_to_start:  # noqa: N801 (stands in for a function)
    def __enter__(self):
        return "a page"

    def __exit__(self, *_):
        return None


def test_without_a_browser_the_drawn_picture_stays_and_the_build_says_so(screenshots, monkeypatch, capsys):
    shown = static.outputs(sample_trace(4), 1, 4, "en")
    notebook = nbformat.v4.new_notebook(cells=[_cell(*shown)])
    monkeypatch.setattr(screenshots, "CHROMIUM", "/nowhere/chromium")
    assert screenshots.replace_pictures(notebook) == 0
    assert notebook.cells[0].outputs[0].data["image/png"] == shown[0]["image/png"]
    assert "apt-get install chromium" in capsys.readouterr().out


@pytest.mark.browser
def test_a_screenshot_shows_the_page_of_the_frame(screenshots):
    frame = static.make_frame(sample_trace(6), 2, stage=4)

    def shoot():
        with screenshots.camera() as page:
            return screenshots.take(page, frame), page.locator(".stepscope").inner_text()

    with ThreadPoolExecutor(1) as thread:  # the other browser tests hold this one's event loop
        picture, text = thread.submit(shoot).result()
    assert "Step 2 replays the graph" in text
    assert len(picture) <= screenshots.MOST_BYTES
    seen = Image.open(io.BytesIO(picture))
    assert (seen.mode, seen.width) == ("P", screenshots.WIDTH)
    assert len(seen.getcolors()) > 8

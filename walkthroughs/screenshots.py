"""Pictures for built notebooks: the page of a stepper's frame, drawn by Chromium, as an 8-bit PNG of at most 50 kB.

The kernel that runs a walkthrough has no browser, so ``show`` leaves a drawn timeline as its picture. The build puts a
screenshot of the very page that the frame holds in its place; where scripts do not run, that is what a reader sees.

Does not: fetch a browser, or judge a picture. Without Chromium or Pillow the drawn timelines stay, and the build says
so.
"""

import base64
import html
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = os.environ.get("STEPSCOPE_CHROMIUM", "/usr/bin/chromium")
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
WIDTH = 960
MOST_HEIGHT = 1100
MOST_BYTES = 50_000
COLOURS = (128, 64, 32, 16)  # as many as fit into the bytes
FRAME = re.compile(r'<iframe [^>]*srcdoc="([^"]*)"')


@contextmanager
def camera() -> Iterator[Any]:
    """Yield a page of a browser without a network, or None where there is no browser to be had."""
    try:
        import PIL.Image  # noqa: F401 (asked for before a browser is started)
        from playwright.sync_api import sync_playwright
    except ImportError:
        yield None
        return
    if not Path(CHROMIUM).exists():
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser.new_context(viewport={"width": WIDTH, "height": MOST_HEIGHT}, offline=True).new_page()
        browser.close()


def take(page: Any, frame: str) -> bytes:
    """Return the picture of the stepper that an iframe's HTML holds."""
    [srcdoc] = FRAME.findall(frame)
    page.goto("about:blank")
    page.set_content(html.unescape(srcdoc), wait_until="commit")
    page.wait_for_selector('.stepscope[data-ready="1"]', timeout=60_000)
    page.evaluate("() => document.fonts.ready")
    box = page.locator(".stepscope").first.bounding_box()
    height = min(MOST_HEIGHT, round(box["y"] + box["height"]))
    return eight_bits(page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": height}))


def eight_bits(png: bytes) -> bytes:
    """Return a picture with a palette, of as many colours as fit into MOST_BYTES.

    The palette covers all hues, since the rare ones matter: what failed is orange, and has few pixels.
    """
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in COLOURS:
        target = io.BytesIO()
        few = picture.quantize(colours, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(target, format="PNG", optimize=True, bits=8)
        if len(target.getvalue()) <= MOST_BYTES:
            break
    return target.getvalue()


def replace_pictures(notebook: Any) -> int:
    """Put a screenshot in the place of each picture that has its frame in the same cell. Returns how many."""
    wanted = [found for cell in notebook.cells if (found := _picture_and_frame(cell)) is not None]
    if not wanted:
        return 0
    with camera() as page:
        if page is None:
            print(f"no pictures: they need {CHROMIUM} (apt-get install chromium), playwright and Pillow")
            return 0
        for output, frame in wanted:
            output.data["image/png"] = base64.b64encode(take(page, frame)).decode()
    return len(wanted)


def _picture_and_frame(cell: Any) -> tuple[Any, str] | None:
    outputs = [output for output in cell.get("outputs", ()) if "data" in output]
    pictures = [output for output in outputs if "image/png" in output.data]
    frames = [output.data["text/html"] for output in outputs if "srcdoc=" in output.data.get("text/html", "")]
    return (pictures[0], frames[0]) if pictures and frames else None

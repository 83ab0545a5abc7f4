"""The README's picture in motion: a step off the graph path, the next on it, and one decode through its ten stages.

A run is recorded, its page is opened in Chromium without a network, and every key that a reader would press gives one
frame. One palette serves all frames. A still of the same page is for readers who asked for less motion.

Does not: fetch a browser or a model; without the model it records the built-in tiny one.

    python walkthroughs/motion.py [FOLDER]
"""

import io
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from screenshots import camera

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.errors import StepscopeError
from lab.session import Session
from lab.trace import Trace
from lab.widgets.static import make_page

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
NAME = "stepping"
PROMPTS = ("The capital of France is", "Once upon a time", (2, "Water boils at"))
STAGE = 3  # where a graph is chosen
KEYS = ("→", "→", *["Page Up"] * STAGE, *["Page Down"] * 9)  # from an eager step two on, then all of its stages
SIZE = {"width": 1000, "height": 860}
FRAME_MS = 1600
FIRST_MS = 2600
TIMES = 3  # then it stands still
COLOURS = 160
MOST_BYTES = 1_000_000
STILL = 2  # the frame of a padded step, where a graph is chosen for it
CAPTION = """(words) => {
  const place = document.getElementById("keys") || document.body.appendChild(document.createElement("p"));
  place.id = "keys";
  place.style.cssText = "position:fixed;right:14px;bottom:0;font:600 15px system-ui,sans-serif;background:#1b1f24;"
    + "color:#fff;border-radius:6px;padding:4px 12px;margin:0 0 8px";
  place.textContent = words;
}"""
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def record() -> Trace:
    """Return a run in which prompts run eagerly, three requests fill a graph for four, and then fewer go on."""
    config = EngineConfig(
        device="cpu",
        max_seq_len=256,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=64),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4)),
    )
    params = SamplingParams(max_tokens=9, ignore_eos=True)
    for model in ("smollm2-135m", "tiny"):
        try:
            with Session(model, prompts=PROMPTS, config=config, params=params) as session:
                return session.run()
        except StepscopeError as error:
            print(f"not with {model}: {error}")
    message = "no model could be run"
    raise RuntimeError(message)


def frames_of(page: Any, trace: Trace) -> list[Image.Image]:
    """Return the page before the first key and after each."""
    padded = next(at for at, step in enumerate(trace.steps) if step.path.num_padding and step.path.num_requests > 2)
    page.set_viewport_size(SIZE)
    page.set_content(make_page(trace, step=padded - 1, stage=STAGE), wait_until="commit")
    page.wait_for_selector('.stepscope[data-ready="1"]', timeout=60_000)
    page.locator(".stepscope").focus()
    pictures = [_photo(page, "keys: ←  →  Page Up  Page Down")]
    for key in KEYS:
        page.keyboard.press({"→": "ArrowRight"}.get(key, key.replace(" ", "")))
        pictures.append(_photo(page, key))
    return pictures


def _photo(page: Any, caption: str) -> Image.Image:
    page.evaluate(CAPTION, caption)
    page.evaluate(PAINTED)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def few_colours(pictures: list[Image.Image]) -> list[Image.Image]:
    """Return the pictures in one palette, so that what did not change is the same in the next."""
    width, height = pictures[0].size
    sheet = Image.new("RGB", (width, height * len(pictures)))
    for at, picture in enumerate(pictures):
        sheet.paste(picture, (0, height * at))
    palette = sheet.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    return [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]


def write(pictures: list[Image.Image], folder: Path) -> None:
    """Write the picture in motion and the still. Raises: ValueError when the first is too large for a README."""
    folder.mkdir(parents=True, exist_ok=True)
    few = few_colours(pictures)
    few[STILL].save(folder / f"{NAME}.png", optimize=True)
    moving = folder / f"{NAME}.webp"
    first, *rest = [picture.convert("RGB") for picture in few]
    duration = [FIRST_MS, *[FRAME_MS] * len(rest)]
    first.save(moving, save_all=True, append_images=rest, duration=duration, loop=TIMES, lossless=True, method=6)
    size = moving.stat().st_size
    print(f"{moving}: {len(few)} frames, {size} bytes; still: {(folder / f'{NAME}.png').stat().st_size} bytes")
    if size >= MOST_BYTES:
        message = f"{moving} has {size} bytes, at most {MOST_BYTES - 1} are wanted; use fewer COLOURS or KEYS"
        raise ValueError(message)


def main(arguments: list[str]) -> int:
    """Make both pictures in the named folder, or where the README looks for them."""
    trace = record()
    with camera() as page:
        if page is None:
            print("no pictures: they need Chromium, playwright and Pillow")
            return 1
        pictures = frames_of(page, trace)
    write(pictures, Path(arguments[0]) if arguments else FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

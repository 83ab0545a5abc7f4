"""The README's picture in motion: there, small, of several frames that can be read, and with a still beside it."""

import itertools
import re
from pathlib import Path

import pytest
from PIL import Image, ImageSequence

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
[PICTURE] = re.findall(r"<picture>(.*?)</picture>", README, re.DOTALL)
[MOVING] = re.findall(r'<img src="([^"]+)"', PICTURE)
[STILL] = re.findall(r'<source media="\(prefers-reduced-motion: reduce\)" srcset="([^"]+)"', PICTURE)


def test_the_picture_in_motion_is_under_a_megabyte_and_has_a_frame_for_every_stage():
    assert (ROOT / MOVING).stat().st_size < 1_000_000
    with Image.open(ROOT / MOVING) as picture:
        frames = [frame.convert("L").tobytes() for frame in ImageSequence.Iterator(picture)]
    assert 12 <= len(frames) <= 20
    assert len(set(frames)) >= 10
    assert all(one != other for one, other in itertools.pairwise(frames))


def test_a_frame_stands_long_enough_to_be_read_and_the_picture_comes_to_rest():
    with Image.open(ROOT / MOVING) as picture:
        times = []
        for at in range(picture.n_frames):
            picture.seek(at)
            picture.load()  # only then is it known how long the frame stands
            times.append(picture.info["duration"])
        assert picture.info["loop"] > 0
    assert min(times) >= 1200


def test_who_asked_for_less_motion_gets_a_still_of_the_same_size():
    with Image.open(ROOT / MOVING) as picture, Image.open(ROOT / STILL) as still:
        assert still.size == picture.size
        assert getattr(still, "n_frames", 1) == 1


def test_the_words_for_the_picture_say_what_happens():
    [words] = re.findall(r'alt="([^"]+)"', PICTURE)
    for said in ("eager", "replay", "dummy", "stage by stage", "keyboard"):
        assert said in words


@pytest.mark.parametrize("source", sorted((ROOT / "walkthroughs/src").glob("[0-9]*.py")), ids=lambda path: path.stem)
def test_the_readme_links_every_walkthrough(source):
    assert f"(walkthroughs/{source.stem}.ipynb)" in README


def test_the_walkthroughs_are_numbered_without_a_gap():
    numbers = {int(path.stem[:2]) for path in (ROOT / "walkthroughs/src").glob("[0-9]*.py")}
    assert numbers == set(range(15))

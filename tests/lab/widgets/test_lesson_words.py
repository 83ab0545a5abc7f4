"""The words of a lesson: both languages, the same arguments, and none that nobody uses."""

import re
from pathlib import Path

import pytest

from lab.widgets import stepper
from lab.widgets.lesson_words import LESSON_WORDS
from lab.widgets.masks import PARTS
from lab.widgets.stepper import read_part

SCRIPT = "".join(read_part(part) for part in stepper._ESM_PARTS)
PYTHON = "".join(path.read_text(encoding="utf-8") for path in Path(stepper.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("name", LESSON_WORDS)
def test_both_languages_take_the_same_arguments(name):
    english, chinese = LESSON_WORDS[name]
    assert english != chinese
    assert re.search(r"[\u4e00-\u9fff]", chinese)
    assert set(re.findall(r"\{(\w+)", english)) == set(re.findall(r"\{(\w+)", chinese))


@pytest.mark.parametrize("name", LESSON_WORDS)
def test_every_word_is_used(name):
    by_part = name.startswith("mask.") and name.removeprefix("mask.") in PARTS
    assert by_part or f'"{name}"' in SCRIPT or PYTHON.count(f'"{name}"') > 1

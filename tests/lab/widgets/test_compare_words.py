"""The words of a comparison: every aspect has a name, and a difference of it makes a whole sentence."""

import pytest

from lab.diff import ASPECTS
from lab.widgets.compare_words import COMPARE_WORDS
from lab.widgets.strings import LANGUAGES, translate


@pytest.mark.parametrize("aspect", ASPECTS)
def test_every_aspect_is_said_in_both_languages(aspect):
    assert f"diff.{aspect}" in COMPARE_WORDS
    arguments = {"step": 3, "what": (f"diff.{aspect}", {}), "left": "x", "right": "y"}
    said = [translate("diff.first", arguments, language) for language in LANGUAGES]
    assert len(set(said)) == len(LANGUAGES)
    assert all("x" in one and "y" in one and "{" not in one and "diff." not in one for one in said)

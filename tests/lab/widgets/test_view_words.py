"""What is said in the views beside the stages, complete and punctuated in both languages."""

import pytest

from engine.kv_cache.copies import CopyKind
from lab.snapshot import STAGES
from lab.widgets.stages import VIEW_LINKS
from lab.widgets.view_words import VIEW_WORDS


@pytest.mark.parametrize("view", range(len(STAGES), len(STAGES) + len(VIEW_LINKS)))
def test_every_view_has_a_name_and_says_what_it_shows(view):
    assert all(VIEW_WORDS[f"stage.{view}"])
    english, chinese = VIEW_WORDS[f"stage.{view}.what"]
    assert english.endswith(".")
    assert chinese.endswith("。")


def test_every_kind_of_copy_has_its_word():
    assert {f"copy.{kind}" for kind in CopyKind} <= VIEW_WORDS.keys()


def test_an_order_is_never_called_a_time_and_the_cpu_is_called_simulated():
    assert "Order only" in VIEW_WORDS["ovl.order"][0]
    assert "no times" in VIEW_WORDS["ovl.order"][0]
    assert "simulated" in VIEW_WORDS["ovl.cpu"][0]
    assert "模拟" in VIEW_WORDS["ovl.cpu"][1]

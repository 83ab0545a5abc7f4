"""The words around the numbers: every mark has its legend."""

import re

import pytest

from lab.snapshot import LAYERS
from lab.widgets.hints import HINTS
from lab.widgets.stepper import read_part


def test_every_state_of_a_buffer_cell_is_explained_when_hovered_and_in_the_legend():
    source = read_part("panel_buffers")
    states = set(re.findall(r'"(live|kept|stale|spare|empty|unwritten)"', source))
    assert states == {"live", "kept", "stale", "spare", "empty", "unwritten"}
    for state in states:
        assert f"buf.cell.{state}" in HINTS
    for state in states - {"unwritten"}:  # that one is a fault: it names itself where it shows
        assert f"buf.legend.{state}" in HINTS


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_of_storage_says_what_it_is(layer):
    english, chinese = HINTS[f"layer.{layer}.what"]
    assert english.endswith(".")
    assert chinese.endswith("。")


def test_every_mark_of_a_writer_is_in_the_marks_line():
    marks = re.search(r"WRITER_MARKS = \[(.*?)\]", read_part("panel_buffers"))[1]
    for mark in re.findall(r'"([^",]+)"', marks):
        for words in HINTS["buf.marks"]:
            assert f"{mark} " in words

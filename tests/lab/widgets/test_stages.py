"""Every stage points at a function that exists, in the file where it is."""

import pytest

from lab.snapshot import STAGES
from lab.widgets.stages import OTHER_LINKS, ROOT, STAGE_LINKS, VIEW_LINKS, find_line, other_facts, stage_facts

SOURCE = """import os


class Outer:
    def first(self):
        return 1

    async def second(self):
        return 2


def alone():
    return 3
"""


def test_there_is_a_link_for_every_stage():
    assert len(STAGE_LINKS) == len(STAGES)
    assert len(stage_facts()) == len(STAGES) + len(VIEW_LINKS)


def test_the_other_ways_belong_to_stages():
    assert {int(key[0]) for key in OTHER_LINKS} <= set(range(len(STAGES)))
    assert {key[1] for key in OTHER_LINKS} == {"s", "p", "e"}


@pytest.mark.parametrize("fact", [*stage_facts(), *other_facts().values()], ids=lambda fact: fact["name"])
def test_the_line_is_that_of_the_definition(fact):
    line = (ROOT / fact["file"]).read_text(encoding="utf-8").splitlines()[fact["line"] - 1]
    assert f"def {fact['name'].rsplit('.', maxsplit=1)[-1]}(" in line
    assert fact["article"]
    assert fact["word_en"]
    assert fact["word_zh"]


@pytest.mark.parametrize(
    ("name", "line"), [("Outer", 4), ("Outer.first", 5), ("Outer.second", 8), ("alone", 12), ("Outer.third", None)]
)
def test_a_name_is_found_in_source(name, line):
    assert find_line(SOURCE, name) == line

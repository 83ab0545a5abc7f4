"""Steps and stages by number and by name; what is not there is refused with what is."""

import pytest

from engine.errors import ConfigError
from lab.snapshot import STAGES
from lab.widgets.places import (
    NUM_PANELS,
    nearest,
    stage_index,
    stage_labels,
    stage_names,
    stage_number,
    stage_spellings,
    step_index,
)
from lab.widgets.strings import LANGUAGES


@pytest.mark.parametrize(
    ("stage", "index"),
    [(None, 0), (9, 9), ("RAN", 7), ("copied", 5), ("Sample", 8), ("blocks", 10), ("Reuse tree", 11), (12, 12)],
)
def test_a_stage_has_a_number_and_two_names(stage, index):
    assert stage_index(stage) == index


@pytest.mark.parametrize("stage", ["packing", 13, -1, 1.0, True, [], object()])
def test_an_unknown_stage_is_refused_with_the_names(stage):
    wanted = r"stage must be 0 to 12 or one of Schedule \(SCHEDULED\), .*Commit \(COMMITTED\), Blocks, .*Overlap, got"
    with pytest.raises(ConfigError, match=wanted):
        stage_index(stage)


@pytest.mark.parametrize(
    ("got", "meant"),
    [
        ("Choose graf", "Choose graph"),
        ("chose graph", "Choose graph"),
        ("GRAPH_CHOOSEN", "GRAPH_CHOSEN"),
        ("packing", "Pack"),
        ("reuse", "Reuse tree"),
        ("选图", "选择图"),
    ],
)
def test_the_nearest_name_is_offered_as_a_reader_sees_it(got, meant):
    with pytest.raises(ConfigError) as caught:
        stage_index(got)
    assert str(caught.value).endswith(f", got {got!r}; did you mean {meant!r}?")


@pytest.mark.parametrize("got", ["lunch", "", "x" * 100_000, 13, None, b"pack"])
def test_nothing_is_offered_for_what_is_like_nothing(got):
    assert nearest(got, stage_spellings()) == ""


def test_a_step_that_is_not_there_is_refused():
    assert [step_index(step, 4) for step in (None, 3, -1, -4)] == [0, 3, 3, 0]
    assert step_index(None, 0) == 0
    with pytest.raises(ConfigError, match=r"step must be from -4 to 3 in a trace of 4 steps, got 4"):
        step_index(4, 4)


@pytest.mark.parametrize("step", [1.0, "1", True, [0]])
def test_a_step_that_is_no_integer_is_refused(step):
    with pytest.raises(ConfigError, match=r"step must be from -4 to 3 in a trace of 4 steps, got"):
        step_index(step, 4)


def test_every_panel_has_a_name_that_leads_to_it():
    for language in LANGUAGES:
        labels = stage_labels(language)
        assert [stage_number(name) for name in labels] == list(range(NUM_PANELS))
        assert set(labels) < set(stage_spellings())
    assert [stage_number(name) for name in STAGES] == list(range(len(STAGES)))
    assert all(f"{label} ({name})" in stage_names() for label, name in zip(stage_labels(), STAGES, strict=False))
    assert [stage_number(one) for one in ("nobody", 13, -1, True, None)] == [None] * 5

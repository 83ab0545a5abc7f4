"""Masks: what a named part hides, what a sentence tells, and what is said of a name that is not there."""

import pytest

from engine.errors import ConfigError
from lab.widgets.masks import PARTS, TELLS, expand, hidden_parts, tellable, tells
from lab.widgets.narration import sentences
from lab.widgets.places import NUM_PANELS
from lab.widgets.strings import STRINGS, translate
from tests.lab.sample_steps import sample_trace

PANELS = {f"stage.{at}" for at in range(NUM_PANELS)}


def test_every_part_hides_itself_and_only_what_is_a_part_or_a_panel():
    for name, hides in PARTS.items():
        assert hides[0] == name
        assert set(hides) <= set(PARTS) | PANELS
        assert f"mask.{name}" in STRINGS


@pytest.mark.parametrize("name", PARTS)
def test_what_a_part_hides_hides_no_more_than_the_part(name):
    inner = {part for one in PARTS[name] if one in PARTS for part in PARTS[one]}
    assert inner <= set(PARTS[name])


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        (None, {}),
        ((), {}),
        ("key", {"key": ["key", "checklist", "stage.7"]}),
        (["next", "checklist"], {"next": ["next"], "checklist": ["checklist"]}),
        (("PACKED", "reuse tree"), {"stage.4": ["stage.4"], "stage.11": ["stage.11"]}),
    ],
)
def test_a_mask_is_a_name_or_several(mask, found):
    assert expand(mask) == found


@pytest.mark.parametrize("mask", ["keys", ["key", 3], 7, b"key", {"key": True}, ["key", None], [["key"]]])
def test_a_name_that_is_not_there_is_refused_with_those_that_are(mask):
    wanted = r"mask hides any of path, reason, bucket, .*, next, or a stage by name \(Schedule \(.*Overlap\), got "
    with pytest.raises(ConfigError, match=wanted):
        expand(mask)


@pytest.mark.parametrize(("mask", "meant"), [("reasons", "reason"), (["key", "chooze graph"], "Choose graph")])
def test_the_part_or_stage_that_was_likely_meant_is_offered(mask, meant):
    with pytest.raises(ConfigError) as caught:
        expand(mask)
    assert str(caught.value).endswith(f"; did you mean {meant!r}?")


def test_every_sentence_that_tells_a_part_is_one_that_is_said():
    for name, parts in TELLS.items():
        assert any(one == name or one.startswith(f"{name}.") for one in STRINGS)
        assert set(parts) <= set(PARTS)
    assert tells("why.HAS_CONTEXT_UNPROMOTED") == ("reason",)
    assert tells("say.idle") == ()


@pytest.mark.parametrize("part", ["path", "bucket", "padding", "reason", "deferrals"])
def test_no_sentence_that_is_left_tells_a_hidden_part(part):
    trace = sample_trace(6)
    hidden = hidden_parts(expand(part))
    for step in trace.steps:
        kept = tellable(sentences(step, trace.header.buckets), hidden)
        assert not [name for name, _ in kept if hidden & set(tells(name))]
        assert f"Step {step.step}" in translate(*kept[0])


def test_a_masked_first_sentence_still_says_who_runs():
    trace = sample_trace(3)
    kept = tellable(sentences(trace.steps[2], trace.header.buckets), hidden_parts(expand("bucket")))
    words = translate(*kept[0])
    assert words.startswith("Step 2: 3 requests decode")
    assert "graph" not in words
    assert tellable(sentences(trace.steps[2], trace.header.buckets), frozenset())[0][0] == "say.replay"
    assert tellable([], hidden_parts(expand("path"))) == []

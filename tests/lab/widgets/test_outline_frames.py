import json

import pytest

from lab.imports.logged import LoggedStep
from lab.imports.outline_steps import Limits, make_snapshot
from lab.trace import Trace
from lab.widgets.frames import FrameEncoder
from lab.widgets.strings import table, translate
from tests.lab.sample_steps import sample_header

LIMITS = Limits(buckets=(1, 2, 4, 8))


def frames(*steps):
    return FrameEncoder(Trace(sample_header(requests=()), [make_snapshot(step, LIMITS) for step in steps])).frames


def decode(step, count, **changes):
    return LoggedStep(step=step, rows=count, requests=count, num_contexts=0, context_rows=0, **changes)


def test_rows_stand_as_counts_of_nobody_and_no_span_has_a_name():
    mixed = LoggedStep(step=0, rows=30, requests=4, num_contexts=1, context_rows=27)
    (frame, padded) = frames(mixed, decode(1, 3))
    assert frame["bare"] is padded["bare"] is True
    assert frame["sch"]["spans"] == []
    assert frame["rows"] == [[-1, 0, 0, -1, -1, 27, []], [-1, 2, 0, -1, -1, 3, []]]
    assert padded["rows"] == [[-1, 2, 0, -1, -1, 3, []], [-1, 3, 0, -1, -1, 1, []]]


def test_a_number_that_is_not_known_is_a_question_mark():
    (frame,) = frames(LoggedStep(step=0, rows=6, path="prefill_replay", padded=8))
    assert frame["sch"]["bud"] == [6, "?", "?", "?", None]
    assert frame["path"]["n"] == "?"
    assert frame["say"][0][1]["requests"] == "?"


def test_a_recorded_step_is_not_marked(light_trace):
    assert not any("bare" in frame for frame in FrameEncoder(light_trace).frames)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_said_has_words_and_names_nobody(language):
    found = frames(decode(0, 9), decode(1, 3), decode(2, 0), decode(3, 2, path="eager"))
    for frame in found:
        said = [translate(name, arguments, language) for name, arguments in [*frame["say"], *frame["chg"]]]
        assert not set(table(language)) & set(" ".join(said).split())
        assert "r-" not in " ".join(said)
    assert [name for name, _ in found[0]["say"]] == [
        "outline.ran",
        "why.ABOVE_LARGEST_BUCKET",
        "outline.derived",
        "outline.missing",
    ]
    assert "outline.untold" in [name for name, _ in found[3]["say"]]
    assert json.dumps(found)

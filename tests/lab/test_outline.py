import dataclasses
import re

import numpy as np
import pytest

from engine.errors import ConfigError
from lab.explain import explain_step
from lab.outline import OUTLINE_WORDS, is_outline, outline_said, outline_text
from lab.snapshot import UNKNOWN, RowsView
from tests.lab.sample_steps import decode_step, eager_step, int32

NO_ROWS = RowsView(int32([]), np.zeros(0, np.uint8), int32([]), int32([]), np.zeros(0, np.uint8), int32([]), int32([]))


def outlined(step, *, padded=None):
    metadata = dataclasses.replace(step.metadata, num_tokens=step.schedule.budget.num_tokens, padded_num_tokens=padded)
    return dataclasses.replace(step, rows=NO_ROWS, metadata=metadata)


def test_a_step_whose_rows_nobody_told_is_an_outline():
    step = decode_step(1, batch=6)
    assert not is_outline(step)
    assert is_outline(outlined(step))
    assert not is_outline(dataclasses.replace(outlined(step), schedule=dataclasses.replace(step.schedule, spans=())))


def test_an_outline_still_counts_its_rows_and_padding():
    step = outlined(decode_step(1, batch=6), padded=8)
    assert (step.num_rows, step.num_padding_rows) == (8, 2)
    assert (outlined(eager_step(0)).num_rows, outlined(eager_step(0)).num_padding_rows) == (12, 0)


def test_an_outline_is_explained_without_what_nobody_knows():
    text = explain_step(outlined(decode_step(1, batch=6), padded=8))
    assert text == (
        "Step 1: rows 6, requests 6, rows from prompts 0; the graph of 6 ran, padding rows: 2. "
        "What the file does not say of path and reason follows from the list of buckets. "
        "Imported: which requests, tokens, blocks and buffers is not in the file."
    )
    assert explain_step(outlined(decode_step(1)), language="zh").startswith("第 1 步：")
    with pytest.raises(ConfigError, match="language must be one of en, zh"):
        explain_step(outlined(decode_step(1)), language="fr")


def test_a_question_mark_stands_for_requests_that_were_not_counted():
    step = outlined(eager_step(3))
    schedule = dataclasses.replace(
        step.schedule, budget=dataclasses.replace(step.schedule.budget, num_requests=UNKNOWN)
    )
    untold = dataclasses.replace(step.path, reason=None, conditions=())
    text = outline_text(dataclasses.replace(step, schedule=schedule, path=untold))
    assert "rows 12, requests ?, rows from prompts ?; it ran eagerly" in text
    assert "Why it ran eagerly is not in the file." in text


def test_both_languages_take_the_same_arguments():
    for english, chinese in OUTLINE_WORDS.values():
        assert set(re.findall(r"\{(\w+)\}", english)) == set(re.findall(r"\{(\w+)\}", chinese))


@pytest.mark.parametrize("path", ["eager", "replay", "capture", "prefill_replay"])
def test_every_path_has_words(path):
    step = outlined(decode_step(1), padded=8)
    step = dataclasses.replace(step, graph=dataclasses.replace(step.graph, path=path))
    said = outline_said(step)
    assert said[0][1]["how"][0] == f"outline.{path}"
    assert "{" not in outline_text(step)

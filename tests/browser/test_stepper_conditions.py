"""What the panels say of conditions, checks and addresses, in Chromium, in both languages."""

import dataclasses
import re

import pytest

from lab.trace import RowMark, Trace
from lab.widgets.whatif import WHAT_IF_WORDS
from tests.browser.pages import focus, press
from tests.browser.test_stepper_graph_path import first, record

pytestmark = pytest.mark.browser

WORDS = ("MiB", "CPU", "Python", "NativeMetadata", "WARMUP", "eager", "logits", "batch", "draft", "greedy", "full")
NAMES = re.compile(r"[\w.]*[._(][\w.]*|0x\w+|…\w+|int\d\d|" + "|".join(WORDS), re.IGNORECASE)


@pytest.fixture(scope="module")
def prefill():
    """A run with prefill chains, decode graphs and, above four requests, eager steps."""
    return record(batch_sizes=(1, 2), prefill_num_tokens=(16, 32, 64))


def condition_rows(page):
    return [text.split("\t") for text in page.locator(".ss-panel tbody tr:visible").all_inner_texts()]


def english_words(text):
    return re.findall(r"[A-Za-z]{3,}", NAMES.sub("", text))


def test_a_condition_that_was_not_reached_says_neither_what_it_needed_nor_what_it_got(page_over, prefill):
    at = first(prefill, lambda step: step.path.reason == "ABOVE_LARGEST_BUCKET")
    page = page_over(prefill, step=at, stage=3)
    rows = condition_rows(page)
    lines = prefill.steps[at].path.conditions
    assert [row[2:] for row, line in zip(rows, lines, strict=True) if line.passed is None] == [["–", "–"]] * 4
    assert [row[2:] for row, line in zip(rows, lines, strict=True) if line.passed is False] == [
        ["at most 2 requests", str(prefill.steps[at].path.num_requests)]
    ]
    assert "batch 0" not in page.locator(".ss-panel").inner_text()


def test_an_eager_step_compares_addresses_with_the_first_ones_and_no_graphs(page_over, prefill):
    at = first(prefill, lambda step: step.path.reason == "ABOVE_LARGEST_BUCKET")
    page = page_over(prefill, step=at, stage=7)
    caption = page.locator(".ss-panel caption:visible")
    assert caption.all_inner_texts() == ["Addresses: at the first step of this run that has the tensor, and now"]
    assert "A graph reads its statics" not in page.locator(".ss-panel").inner_text()
    page.locator(".ss-lang").click()
    press(page, "Shift")
    assert caption.all_inner_texts() == ["地址：张量在本次运行中首次出现时的与现在的"]
    focus(page)
    press(page, "Home")
    assert caption.all_inner_texts()[1] == "地址：图中固化的与现在的"


@pytest.mark.parametrize("stage", [3, 4, 5, 6, 7])
def test_the_chinese_panels_hold_no_english_but_names(page_over, prefill, stage):
    eager = first(prefill, lambda step: step.path.reason == "ABOVE_LARGEST_BUCKET")
    padded = record(batch_sizes=(1, 2, 4))
    marked = Trace(padded.header, padded.steps, (RowMark(6, 1, "samples 104, the healthy run 99"),))
    for trace, at in ((prefill, 0), (prefill, eager), (marked, 6)):
        page = page_over(trace, step=at, stage=stage, lang="zh")
        # Token texts and the article's own headings are what they are.
        cells = page.locator(".ss-panel :is(p, caption, th, td):visible:not(:has(.ss-tok))").all_inner_texts()
        assert cells
        for text in (text for text in cells if "代码" not in text and "文章" not in text):
            assert english_words(text) == [], text
        page.close()


def test_a_row_left_by_warm_up_is_told_without_a_number(page_over, prefill):
    at = first(prefill, lambda step: step.path.reason == "ABOVE_LARGEST_BUCKET")
    left = dataclasses.replace(prefill.steps[at].buffers[0].origins[0], start=3, end=4, step=-1)
    view = dataclasses.replace(prefill.steps[at].buffers[0], live_rows=3, origins=(left,))
    step = dataclasses.replace(prefill.steps[at], buffers=(view,))
    for lang, told in (
        ("en", "row 3: left by {} before the first step; not read"),
        ("zh", "第 3 行：第一步之前由{}留下；不读取"),
    ):
        page = page_over(Trace(prefill.header, [step]), stage=5, lang=lang)
        titles = [cell.get_attribute("title") for cell in page.locator('.ss-ribbon .ss-cell[data-s="stale"]').all()]
        assert len(titles) == 1
        assert re.fullmatch(told.format(".+"), titles[0])


def test_a_key_keeps_one_pair_of_brackets():
    assert not [words for words in WHAT_IF_WORDS.values() if re.search(r"[（(]\{key\}", " ".join(words))]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_failed_condition_is_seen_below_a_proof_without_scrolling(page_over, prefill, lang):
    at = first(prefill, lambda step: step.path.reason == "ABOVE_LARGEST_BUCKET")
    change = {"field": "CudaGraphConfig.batch_sizes", "before": "(1, 2)", "after": "(1, 2, 3)"}
    proved = {"step": 3, "path": ("run.replay", {}), "key": "(batch 3, draft 0, greedy)"}
    said = [("whatif.change", change), ("whatif.proved", proved), ("whatif.simulated", {})]
    page = page_over(prefill, step=at, stage=3, lang=lang, whatifs={str(prefill.steps[at].step): said})
    panel = page.locator(".ss-panel").bounding_box()
    row = page.locator('.ss-panel tr[data-s="no"]').bounding_box()
    assert row["y"] + 20 <= panel["y"] + panel["height"]

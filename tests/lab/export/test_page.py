import base64
import hashlib
import re

import pytest

from engine.errors import TraceError
from lab.export.page import MOST_STEPS, PageSettings, export_page
from lab.trace import Trace
from lab.widgets.frames import encode
from tests.lab.sample_steps import decode_step, sample_header, sample_trace


@pytest.fixture(scope="module")
def page(light_trace):
    return export_page(light_trace, PageSettings(step=2, stage=4))


def test_the_page_loads_nothing_from_anywhere(page):
    addresses = set(re.findall(r"https?://[^\"'\s)]+", page)) - {"http://www.w3.org/2000/svg"}
    assert not addresses
    assert not re.search(r"<(?:link|img|iframe|object|embed)\b|<script[^>]+src=|@import|url\(", page)


def test_its_policy_names_the_one_script_by_its_hash_and_forbids_the_rest(page):
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    (script,) = re.findall(r'<script type="module">(.*)</script>', page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.split("; ")[:2] == ["default-src 'none'", f"script-src 'sha256-{digest}'"]
    assert "connect-src" not in policy  # so that the default, none, holds
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script")


def test_it_opens_where_it_was_asked_to(page):
    assert '"step": 2, "stage": 4' in page
    assert "<h1>tiny on cpu</h1>" in page


def test_the_steps_are_those_of_the_trace(page, light_trace):
    stored = re.search(r'"trace": "([^"]+)"', page)[1]
    assert base64.b64decode(stored) == encode(light_trace)
    assert f"All {len(light_trace)} steps of the run." in page


def test_it_says_that_the_stepper_takes_keys_once_it_is_clicked(page):
    assert "<p>Click the stepper: then arrow keys step," in page


def test_a_thousand_steps_of_eight_make_a_page_of_at_most_half_a_megabyte():
    trace = Trace(sample_header(), [decode_step(at) for at in range(1000)])
    assert len(export_page(trace).encode()) < 500_000


def test_a_longer_run_is_cut_to_a_window_around_the_step_and_says_so():
    trace = sample_trace(30)
    page = export_page(trace, PageSettings(step=20, most_steps=10))
    assert "Cut: steps 15 to 24, of 30 that the file holds." in page
    assert '"step": 5,' in page
    last = export_page(trace, PageSettings(step=-1, most_steps=10, lang="zh"))
    assert "已截取：第 20 步到第 29 步；文件共有 30 步。" in last
    assert '"step": 9,' in last
    assert '<html lang="zh">' in last


def test_nobody_is_given_more_steps_than_a_page_takes_unless_asked():
    trace = sample_trace(8)
    assert MOST_STEPS == 2000
    assert "Cut:" not in export_page(trace, PageSettings(most_steps=8))
    assert "Cut:" in export_page(trace, PageSettings(most_steps=7))


def test_text_of_a_model_s_name_cannot_become_markup():
    header = sample_header()
    named = Trace(
        sample_header(model=type(header.model)("</script><script>alert(1)</script>", "x")), sample_trace(3).steps
    )
    page = export_page(named)
    assert "<script>alert" not in page
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize(
    ("num_steps", "settings", "words"),
    [
        (0, PageSettings(), "a page needs at least one step, and this trace has none"),
        (3, PageSettings(step=3), "step must be an index from -3 to 2, got 3"),
        (3, PageSettings(most_steps=0), "a page holds 1 to 10000 steps, got most_steps=0"),
        (3, PageSettings(most_steps=10_001), "a page holds 1 to 10000 steps, got most_steps=10001"),
    ],
)
def test_what_cannot_be_a_page_is_refused_in_words(num_steps, settings, words):
    trace = Trace(sample_header(), sample_trace(3).steps[:num_steps])
    with pytest.raises(TraceError, match=re.escape(words)):
        export_page(trace, settings)


def test_it_follows_the_reader_s_setting_unless_dark_was_asked_for(page, light_trace):
    assert 'matchMedia("(prefers-color-scheme: dark)")' in page
    dark = export_page(light_trace, PageSettings(dark=True))
    assert "matchMedia" not in dark
    assert 'data-jp-theme-light="false"' in dark


def test_the_views_have_the_margin_of_the_heading(page):
    assert ".about{margin:.6rem 1rem;" in page
    assert "#views{margin:0 1rem 1rem}" in page

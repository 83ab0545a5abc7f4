"""show, in a notebook and in the static profile."""

import base64
import re
import zlib

import IPython.display
import pytest

from engine.errors import ConfigError
from lab.trace import Trace
from lab.widgets import static
from lab.widgets.show import show
from lab.widgets.stepper import Stepper
from tests.lab.sample_steps import decode_step, sample_header, sample_trace


@pytest.fixture
def published(monkeypatch):
    shown = []
    monkeypatch.setattr(IPython.display, "publish_display_data", lambda data, **_: shown.append(data))
    return shown


def test_a_trace_becomes_a_widget(monkeypatch):
    monkeypatch.delenv("LAB_STATIC", raising=False)
    widget = show(sample_trace(3), step=1, stage="Run", lang="zh")
    assert isinstance(widget, Stepper)
    assert (widget.step, widget.stage, widget.lang, widget.is_live) == (1, 7, "zh", False)
    widget.close()


def test_a_session_becomes_a_live_widget(monkeypatch):
    monkeypatch.delenv("LAB_STATIC", raising=False)

    class Session:
        trace = sample_trace(2)
        is_finished = False

    widget = show(Session())
    assert widget is not None
    assert widget.is_live
    widget.close()


def test_the_static_profile_leaves_a_picture_a_table_and_a_page(published, monkeypatch):
    monkeypatch.setenv("LAB_STATIC", "1")
    assert show(sample_trace(5), step=2) is None
    assert [sorted(data) for data in published] == [
        ["image/png", "text/plain"],
        ["text/html", "text/plain"],
        ["text/html", "text/plain"],
    ]
    assert published[0]["text/plain"].startswith("Step 2 replays the graph for 3")
    assert published[1]["text/html"].count("<tr>") == 6
    assert '<th scope="row">▸ 2</th>' in published[1]["text/html"]
    assert published[2]["text/html"].startswith('<iframe title="Step viewer" srcdoc="')
    assert all(len(str(data)) < 300_000 for data in published)


def test_the_picture_is_a_png_with_every_path_in_its_colour():
    data = static.make_picture(sample_trace(6), 2)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    pixels = zlib.decompress(data[data.index(b"IDAT") + 4 :])
    assert len(pixels) == 150 * (1 + 920 * 3)
    assert bytes((0, 114, 178)) * 3 in pixels
    assert bytes((0, 158, 115)) * 3 in pixels


def test_a_page_holds_its_trace_and_asks_for_nothing(full_trace):
    page = static.make_page(full_trace, step=1, lang="zh", dark=True)
    assert 'data-jp-theme-light="false"' in page
    assert '<html lang="zh">' in page
    assert set(re.findall(r"https?://[^\"' ]*", page)) <= {"http://www.w3.org/2000/svg"}
    trace = base64.b64decode(re.search(r'"trace": "([^"]+)"', page)[1])
    assert zlib.decompress(trace).startswith(b'{"header":')


def test_text_of_a_trace_cannot_close_the_script():
    header = sample_header()
    page = static.make_page(Trace(header, [decode_step(1)]), alert="</script><b>")
    assert "</script><b>" not in page


def test_a_long_trace_is_cut_around_the_chosen_step():
    trace = Trace(sample_header(), [decode_step(i, batch=1) for i in range(500)])
    part, index = static.window(trace, 400)
    assert len(part.steps) == static.MAX_STEPS
    assert part.steps[index].step == 400
    assert static.window(trace, 0)[1] == 0
    assert static.window(trace, 499)[1] == static.MAX_STEPS - 1


def test_what_cannot_be_shown_is_said(published):
    with pytest.raises(ConfigError, match="show takes a Trace or a Session, got str"):
        show("trace.json")
    with pytest.raises(ConfigError, match=r"profile must be 'live' or 'static', got 'png'"):
        show(sample_trace(2), profile="png")
    with pytest.raises(ConfigError, match="needs at least one step"):
        show(Trace(sample_header(), []), profile="static")
    assert published == []

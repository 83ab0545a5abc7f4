"""What is left of the stepper without a kernel: a picture, a table, a page that steps."""

import base64
import re
import zlib

import numpy as np

from lab.trace import Trace
from lab.widgets import static
from tests.lab.sample_steps import decode_step, sample_header, sample_trace


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


def test_a_table_marks_the_chosen_step_and_escapes_its_text():
    html = static.make_table(sample_trace(4), 2, "zh")
    assert "<caption>所有步骤</caption>" in html
    assert html.count('<th scope="col">') == 7
    assert '<th scope="row">▸ 2</th>' in html
    assert "HAS_CONTEXT_UNPROMOTED" in html


def test_a_frame_has_a_title_and_holds_the_packed_page_as_an_attribute():
    trace = sample_trace(4)
    frame = static.make_frame(trace, 1)
    assert frame.startswith('<iframe title="Step viewer" srcdoc="&lt;!doctype html&gt;')
    assert "<script" not in frame
    packed = re.search(r"atob\(&quot;([A-Za-z0-9+/=]+)&quot;\)", frame)[1]
    page = static.make_page(trace, step=1)
    assert zlib.decompress(base64.b64decode(packed)).decode() == page
    assert len(frame) < len(page) / 2


def test_a_png_holds_its_pixels():
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    data = static.encode_png(pixels)
    assert data[16:24] == (3).to_bytes(4, "big") + (2).to_bytes(4, "big")
    start = data.index(b"IDAT") + 4
    assert zlib.decompressobj().decompress(data[start:]) == b"\0" + bytes(range(9)) + b"\0" + bytes(range(9, 18))


def test_the_text_is_that_of_the_widget():
    assert static.make_text(sample_trace(4), 2).startswith("Step 2 replays the graph for 3: 3 requests decode")

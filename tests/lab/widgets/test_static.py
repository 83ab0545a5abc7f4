"""What is left of the stepper without a kernel: a picture, a table, a page that steps."""

import base64
import dataclasses
import json
import re
import zlib

import numpy as np
import pytest

from lab.imports.outline_steps import _NO_ROWS as NO_ROWS
from lab.trace import Trace
from lab.widgets import static
from lab.widgets.masks import expand, hidden_parts
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


@pytest.mark.parametrize("text", ["</script><b>", "<!-- <script>", "</SCRIPT >", "<\\/script>"])
def test_text_of_a_trace_can_neither_close_the_script_nor_keep_it_open(text):
    page = static.make_page(Trace(sample_header(), [decode_step(1)]), alert=text, notes={"": text})
    state = page.partition("\nconst state = ")[2].partition(";\nstate.trace = ")[0]
    assert "<" not in state
    assert (json.loads(state)["alert"], json.loads(state)["notes"]) == (text, {"": text}), "it is still said"


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


def test_hidden_parts_are_in_neither_picture_nor_table():
    trace = sample_trace(6)
    shown = [static.make_picture(trace, 3, frozenset(hidden)) for hidden in ((), ("path",), ("next",))]
    assert len(set(shown)) == 3
    hidden = hidden_parts(expand(("path", "next")))
    table = static.make_table(trace, 3, "en", hidden)
    assert table.count('<th scope="row">') == 4
    assert not [word for word in ("replay", "eager", "batch 4", "HAS_CONTEXT") if word in table]
    assert table.count("<td>?</td><td>?</td>") == 4


def test_hidden_padding_is_neither_drawn_nor_counted(light_trace):
    at = next(at for at, step in enumerate(light_trace.steps) if step.num_padding_rows)
    step, hidden = light_trace.steps[at], hidden_parts(expand("padding"))
    assert static.make_picture(light_trace, at) != static.make_picture(light_trace, at, hidden)
    row = static.make_table(light_trace, at, "en", hidden).split("▸ ")[1].split("</tr>")[0]
    assert f"<td>{step.num_rows - step.num_padding_rows}</td><td>?</td>" in row


def test_an_idle_step_is_a_path_of_its_own_in_table_and_picture():
    trace = sample_trace(3)
    idle = dataclasses.replace(
        trace.steps[0], schedule=dataclasses.replace(trace.steps[0].schedule, spans=()), rows=NO_ROWS
    )
    run = Trace(trace.header, [idle, *trace.steps[1:]])
    assert "<td>idle</td>" in static.make_table(run, 1)
    assert "<td>eager</td>" not in static.make_table(run, 1)
    assert static.make_picture(run, 1) != static.make_picture(trace, 1)


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

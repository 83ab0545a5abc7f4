"""A stepper without a kernel: a picture, a table and a page that still steps, for saved notebooks and web pages.

Three separate outputs, because a renderer that prefers HTML to a picture would otherwise hide the picture, and one that
strips scripts would hide the table. The page holds the same module as the widget behind a model of twenty lines and
asks nothing of the network.

Does not: need a notebook, matplotlib or a browser to be made.
Source: the measured matrix of which saved output survives where; widget outputs without state survive nowhere.
"""

import base64
import html
import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from lab.ledger_history import picked
from lab.outline import UNTOLD
from lab.snapshot import StepSnapshot
from lab.trace import Trace
from lab.trace_summary import path_word
from lab.widgets.compare import Comparison
from lab.widgets.frames import FrameEncoder, deflate
from lab.widgets.lesson import NO_LESSON, Lesson
from lab.widgets.masks import hidden_parts, tellable
from lab.widgets.narration import sentences
from lab.widgets.predicted_cells import FIRST_CELL
from lab.widgets.stepper import join_esm, read_css, read_part
from lab.widgets.strings import LANGUAGES, table, told, translate
from lab.widgets.whatif import Answers

MAX_STEPS: Final = 200  # of a page, around the chosen step: a notebook's output stays small
_WIDTH: Final = 920
_HEIGHT: Final = 150
_COLOURS: Final = {
    "eager": (0, 114, 178),
    "replay": (0, 158, 115),
    "capture": (230, 159, 0),
    "prefill_replay": (86, 180, 233),
}
_PADDING: Final = (140, 149, 159)
_PAGE: Final = """<!doctype html><html lang="{lang}"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ margin: 0; font-family: system-ui, sans-serif; }}
[data-jp-theme-light="false"] {{ background: #111; color: #eee; }}
{css}</style></head><body data-jp-theme-light="{light}"><main id="views"></main><script type="module">
{esm}
{fake}
const state = {state};
state.trace = new DataView(Uint8Array.from(atob(state.trace), (c) => c.charCodeAt(0)).buffer);
const model = fakeModel(state);
const addView = () => {{
  const el = document.createElement("div");
  document.getElementById("views").append(el);
  return stepper.render({{ model, el }});
}};
Object.assign(window, {{ model, addView }});
window.closeFirst = await addView();
</script></body></html>"""

# A notebook's output stays small: the page travels deflated, and this unpacks it where a script may run at all.
_LOADER: Final = """<!doctype html><meta charset="utf-8"><script>
const packed = Uint8Array.from(atob("{packed}"), (c) => c.charCodeAt(0));
const pages = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
new Response(pages).text().then((page) => {{ document.open(); document.write(page); document.close(); }});
</script>"""


def make_state(trace: Trace, **traits: Any) -> dict[str, Any]:
    """Return the widget's traits over ``trace`` as plain JSON values; traits replace the defaults."""
    state: dict[str, Any] = {
        "trace": base64.b64encode(deflate(FrameEncoder(trace).part())).decode(),
        "words": {language: table(language) for language in LANGUAGES},
        "step": 0,
        "stage": 0,
        "selected": -1,
        "lang": "en",
        "predict_from": -1,
        "answers": {},
        "ask": "way",
        "cell": FIRST_CELL,
        "mask": {},
        "revealed": [],
        "notes": {},
        "large": False,
        "is_live": False,
        "finished": False,
        "alert": "",
        "whatifs": {},
        "can_prove": False,
    }
    return {**state, **traits}


def make_page(trace: Trace, *, dark: bool = False, **traits: Any) -> str:
    """Return a whole page that steps through ``trace`` by itself."""
    # Text may neither close the script nor, with a comment and a second one in it, keep the real end from closing it.
    state = json.dumps(make_state(trace, **traits), ensure_ascii=False).replace("<", "\\u003c")
    return _PAGE.format(
        lang=traits.get("lang", "en"),
        title=html.escape(trace.header.model.name),
        css=read_css(),
        light=str(not dark).lower(),
        esm=join_esm().replace("export default{", "const stepper={"),
        fake=read_part("fake_model"),
        state=state,
    )


def window(trace: Trace, step: int) -> tuple[Trace, int]:
    """Return at most MAX_STEPS steps around ``step``, and its index among them."""
    first = min(max(0, step - MAX_STEPS // 2), max(0, len(trace.steps) - MAX_STEPS))
    chosen = picked(trace.steps, range(first, min(first + MAX_STEPS, len(trace.steps))))
    return Trace(trace.header, chosen, trace.marks), step - first


def lesson_traits(lesson: Lesson) -> dict[str, Any]:
    """Return what a teacher adds as traits of a page."""
    return {"mask": dict(lesson.mask), "notes": dict(lesson.notes), "large": lesson.large}


def make_frame(trace: Trace, step: int, **traits: Any) -> str:
    """Return an iframe that holds the page, deflated; its height fits the widget."""
    part, index = window(trace, step)
    packed = base64.b64encode(zlib.compress(make_page(part, step=index, **traits).encode(), 9)).decode()
    page = html.escape(_LOADER.format(packed=packed), quote=True)
    title = html.escape(translate("root.name", {}, traits.get("lang", "en")))
    return f'<iframe title="{title}" srcdoc="{page}" style="width:100%;height:900px;border:0"></iframe>'


def make_table(trace: Trace, step: int, lang: str = "en", hidden: frozenset[str] = frozenset()) -> str:
    """Return the steps as a plain HTML table: it survives where scripts do not. hidden: parts that are not told."""
    part, index = window(trace, step)
    names = ("col.step", "col.path", "col.key", "col.requests", "col.rows", "col.padding", "col.sampled")
    head = "".join(f'<th scope="col">{html.escape(translate(name, {}, lang))}</th>' for name in names)
    steps = list(part.steps)[: index + 1 if "next" in hidden else None]
    rows = [_table_row(one, lang, hidden, is_chosen=at == index) for at, one in enumerate(steps)]
    caption = html.escape(translate("cap.steps", {}, lang))
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _table_row(step: StepSnapshot, lang: str, hidden: frozenset[str], *, is_chosen: bool) -> str:
    key_part = "key" if step.graph.key else "reason"
    cells = (
        UNTOLD if "path" in hidden else translate(f"run.{path_word(step)}", {}, lang),
        UNTOLD if {key_part, "path"} & hidden else step.graph.key or step.path.reason or "–",
        step.path.num_requests,
        step.num_rows - step.num_padding_rows if "padding" in hidden else step.num_rows,
        UNTOLD if "padding" in hidden else step.num_padding_rows,
        len(step.outcome.tokens),
    )
    mark = "▸ " if is_chosen else ""
    body = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells)
    return f'<tr><th scope="row">{mark}{step.step}</th>{body}</tr>'


def make_text(trace: Trace, step: int, lang: str = "en", hidden: frozenset[str] = frozenset()) -> str:
    """Return the sentences of the chosen step, those that tell a hidden part left out."""
    said = tellable(sentences(trace.steps[step], trace.header.buckets), hidden)
    return told(said, lang)


def make_lesson_text(trace: Trace, step: int, stage: int, lang: str, lesson: Lesson) -> str:
    """Return the sentences of the chosen step and the teacher's notes beside it."""
    number = trace.steps[step].step
    notes = [lesson.notes.get(key) for key in ("", f"/{stage}", f"{number}", f"{number}/{stage}")]
    return "\n".join([make_text(trace, step, lang, hidden_parts(lesson.mask)), *[note for note in notes if note]])


def make_picture(trace: Trace, step: int, hidden: frozenset[str] = frozenset()) -> bytes:
    """Return the timeline as a PNG: rows of each step by path, padding in grey on top, the chosen step framed.

    hidden: a path that is not told is grey, padding that is not told is not drawn, nor is a step to come.
    """
    part, index = window(trace, step)
    pixels = np.full((_HEIGHT, _WIDTH, 3), 255, np.uint8)
    most = max(1, *(one.num_rows for one in part.steps))
    base, room = _HEIGHT - 14, _HEIGHT - 26
    edges = np.linspace(4, _WIDTH - 4, len(part.steps) + 1).round().astype(int)
    for at, one in enumerate(part.steps):
        if "next" in hidden and at > index:
            break
        left, right = int(edges[at]), max(int(edges[at]) + 1, int(edges[at + 1]) - 2)
        top = base - round(room * (one.num_rows / most) ** 0.5)
        split = top + round((base - top) * one.num_padding_rows / max(1, one.num_rows))
        pixels[top:split, left:right] = 255 if "padding" in hidden else _PADDING
        pixels[split:base, left:right] = _PADDING if "path" in hidden else _COLOURS[one.graph.path]
        if path_word(one) == "eager" and "path" not in hidden:  # never by colour alone: a notch under every eager step
            middle = (left + right) // 2
            pixels[base + 4 : base + 12, middle - 1 : middle + 1] = (168, 67, 0)
        if at == index:
            _outline(pixels, max(0, left - 3), right + 2)
    return encode_png(pixels)


def _outline(pixels: np.ndarray[Any, Any], left: int, right: int) -> None:
    pixels[2:4, left:right] = pixels[-4:-2, left:right] = 20
    pixels[2:-2, left : left + 2] = pixels[2:-2, right - 2 : right] = 20


def encode_png(pixels: np.ndarray[Any, Any]) -> bytes:
    """Return an RGB picture as PNG. Shapes: pixels [height, width, 3] uint8."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data) for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def outputs(
    trace: Trace,
    step: int,
    stage: int,
    lang: str,
    *,
    whatifs: Answers | None = None,
    lesson: Lesson = NO_LESSON,
) -> Sequence[dict[str, str]]:
    """Return the three outputs as MIME bundles, in the order in which they are shown."""
    hidden = hidden_parts(lesson.mask)
    picture = base64.b64encode(make_picture(trace, step, hidden)).decode()
    said = make_lesson_text(trace, step, stage, lang, lesson)
    frame = make_frame(trace, step, stage=stage, lang=lang, whatifs=whatifs or {}, **lesson_traits(lesson))
    return (
        {"image/png": picture, "text/plain": said},
        {"text/html": make_table(trace, step, lang, hidden), "text/plain": said if hidden else str(trace.summary())},
        {"text/html": frame, "text/plain": "a page that steps"},
    )


def make_differences(found: Comparison, lang: str = "en") -> str:
    """Return the sentence and the steps that differ as HTML; the first MAX_STEPS of them."""
    listed = found.differences[:MAX_STEPS]
    names = ("col.step", "diff.what")
    runs = [translate("diff.run", {"which": which}, lang) for which in "AB"]
    words = [*(translate(name, {}, lang) for name in names), *runs]
    head = "".join(f'<th scope="col">{html.escape(word)}</th>' for word in words)
    rows = [
        f'<tr><th scope="row">{one.at}</th>'
        + "".join(
            f"<td>{html.escape(cell)}</td>" for cell in (translate(f"diff.{one.aspect}", {}, lang), one.left, one.right)
        )
        + "</tr>"
        for one in listed
    ]
    caption = html.escape(translate("diff.list", {"n": len(found.differences), "shown": len(listed)}, lang))
    table_ = f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<p>{html.escape(found.sentence(lang))}</p>{table_ if listed else ''}"


def outputs_of_two(
    found: Comparison, step: int, stage: int, lang: str, *, large: bool = False
) -> Sequence[dict[str, str]]:
    """Return the comparison and a page for each run as MIME bundles. step: of the left run."""
    beside = found.beside(step)
    bundles = [{"text/html": make_differences(found, lang), "text/plain": found.sentence(lang)}]
    for which, trace, index in (("A", found.left, step), ("B", found.right, 0 if beside is None else beside)):
        title = translate("diff.run", {"which": which}, lang)
        frame = make_frame(trace, index, stage=stage, lang=lang, large=large)
        bundles.append({"text/html": f"<h4>{html.escape(title)}</h4>{frame}", "text/plain": title})
    return bundles

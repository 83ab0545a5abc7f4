"""One page of a whole run, to send to somebody: it steps by itself, and asks nothing of the network.

It is the stepper's page (``lab/widgets/static.py``) with a heading and a content security policy: one inline script,
named by its hash, and no connection to anywhere. A run of more steps than a page holds is cut to those around one step,
and the page says which.

Does not: draw, or write a file.
Source: what a browser may load is decided by the page's own policy (CSP level 3), so that a reader need not trust it.
"""

import base64
import dataclasses
import hashlib
import html
from typing import Final

from engine.errors import TraceError
from lab.collector import collector_held
from lab.ledger_history import picked
from lab.outline import is_outline
from lab.trace import Trace
from lab.widgets.lesson import NO_LESSON, Lesson
from lab.widgets.static import lesson_traits, make_page

MOST_STEPS: Final = 2000  # of a page that nobody asked to be larger
HARDEST_LIMIT: Final = 10_000  # the stepper keeps no more
_SCRIPT: Final = '<script type="module">'
_HEAD: Final = '<head><meta charset="utf-8">'
_BODY: Final = '<main id="views">'
_STYLE: Final = (
    "<style>.about{margin:.6rem 1rem;line-height:1.4}.about h1{font-size:1.15rem;margin:0}.about p{margin:.2rem 0}"
    ".about h2{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}"
    "#views{margin:0 1rem 1rem}</style>"
)
_FOLLOW: Final = (  # the reader's own setting, also when it changes while the page is open
    '{const asked=matchMedia("(prefers-color-scheme: dark)"),'
    'follow=()=>document.body.setAttribute("data-jp-theme-light",String(!asked.matches));'
    'asked.addEventListener("change",follow);follow()}'
)
_WORDS: Final = {
    "en": {
        "title": "{model} on {device}",
        "whole": "All {total} steps of the run.",
        "cut": "Cut: steps {first} to {last}, of {total} that the file holds. "
        "`stepscope trace export FILE --html OUT --step I` makes a page around another step.",
        "outline": "Imported: the numbers of another engine's log. What the log does not tell is missing here.",
        "keys": "Click the stepper: then arrow keys step, PageUp and PageDown change the stage, and ? lists all keys.",
        "steps": "The steps",
    },
    "zh": {
        "title": "{model}，运行于 {device}",
        "whole": "运行的全部 {total} 步。",
        "cut": "已截取：第 {first} 步到第 {last} 步；文件共有 {total} 步。"
        "`stepscope trace export FILE --html OUT --step I` 可生成另一步附近的页面。",
        "outline": "导入：来自另一个引擎日志的数字。日志没有记录的内容，这里也没有。",
        "keys": "先点一下步进器：方向键换步，PageUp 和 PageDown 换阶段，? 列出所有按键。",
        "steps": "各步",
    },
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """Where the page opens and how it looks.

    step: index into the trace's steps. dark: light on dark for everybody; otherwise the page follows what each reader
    has set. most_steps: that the page holds. lesson: what a teacher adds.
    """

    step: int = 0
    stage: int = 0
    lang: str = "en"
    dark: bool = False
    most_steps: int = MOST_STEPS
    lesson: Lesson = NO_LESSON


def export_page(trace: Trace, settings: PageSettings = PageSettings()) -> str:
    """Return the page. Raises: TraceError for a trace without steps, a step that is not there, or a limit below 1."""
    if not len(trace):
        message = "a page needs at least one step, and this trace has none; record a run that takes one"
        raise TraceError(message)
    if not 1 <= settings.most_steps <= HARDEST_LIMIT:
        message = f"a page holds 1 to {HARDEST_LIMIT} steps, got most_steps={settings.most_steps}"
        raise TraceError(message)
    chosen = trace.place(settings.step)
    first = min(max(0, chosen - settings.most_steps // 2), max(0, len(trace) - settings.most_steps))
    with collector_held():
        part = _cut(trace, first, settings.most_steps)
        page = make_page(
            part,
            dark=settings.dark,
            step=chosen - first,
            stage=settings.stage,
            lang=settings.lang,
            **lesson_traits(settings.lesson),
        )
    if not settings.dark:
        page = page.replace(_SCRIPT, f"{_SCRIPT}{_FOLLOW}", 1)
    return _with_policy(page.replace(_BODY, f"{_about(trace, part, settings.lang)}{_BODY}", 1))


def _cut(trace: Trace, first: int, most: int) -> Trace:
    """Return a part of a run; it begins like one whose first steps were let go."""
    if len(trace) <= most:
        return trace
    header = dataclasses.replace(trace.header, num_dropped=trace.header.num_dropped + first)
    return Trace(header, picked(trace.steps, range(first, first + most)), trace.marks)


def _about(trace: Trace, part: Trace, lang: str) -> str:
    words, header = _WORDS[lang], trace.header
    title = words["title"].format(model=header.model.name, device=header.device.device)
    kept = words["whole"].format(total=len(trace))
    if len(part) < len(trace):
        kept = words["cut"].format(first=part.steps[0].step, last=part.steps[-1].step, total=len(trace))
    lines = [kept, *[words["outline"]] * is_outline(part.steps[0]), words["keys"]]
    said = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    return f'<header class="about"><h1>{html.escape(title)}</h1>{said}<h2>{words["steps"]}</h2></header>'


def _with_policy(page: str) -> str:
    """Name the one script by its hash, and forbid everything else."""
    begin = page.index(_SCRIPT) + len(_SCRIPT)
    script = page[begin : page.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = f'{_HEAD}<meta http-equiv="Content-Security-Policy" content="{policy}">{_STYLE}'
    assert page.count(_SCRIPT) == 1, "the page has a second script, which its policy would stop"
    assert _HEAD in page
    return page.replace(_HEAD, head, 1)

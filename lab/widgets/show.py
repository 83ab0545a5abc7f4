"""show: the one call that puts a trace or a session on the screen, whatever the screen is.

*live* (the default in a notebook) is the widget. *static* leaves a picture, a table and a page that still steps, and no
widget at all: that is how committed notebooks are built (``LAB_STATIC=1`` chooses it for a whole process). Outside of a
notebook, where nobody would see a widget, static is the default, and it prints text: the step in words, the summary,
and where there is more to see.

Does not: record or run anything, or import torch.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast, overload

from engine.errors import ConfigError
from engine.fields import shown
from lab.trace import Trace
from lab.widgets import compare as comparing
from lab.widgets.compare_view import CompareView
from lab.widgets.lesson import Lesson, make_lesson, step_numbers
from lab.widgets.places import stage_index, step_index
from lab.widgets.stepper import LiveSession, Stepper
from lab.widgets.strings import LANGUAGES
from lab.widgets.whatif import wanted

Profile = Literal["live", "static"]
Notes = str | Mapping[int | tuple[int | None, str | int | None], str]
_ELSEWHERE: Final = (
    "Pictures need a notebook (`stepscope lab` opens one). In a terminal, trace.explain(i) words any step, and "
    "`stepscope trace show FILE` lists all steps of a trace that trace.save(FILE) wrote."
)


@overload
def show(
    what: Trace | LiveSession,
    *,
    step: int | None = ...,
    stage: str | int | None = ...,
    lang: str = ...,
    profile: Profile | None = ...,
    counterfactuals: bool | Mapping[int, Any] = ...,
    mask: str | Sequence[str] | None = ...,
    notes: Notes | None = ...,
    large: bool = ...,
) -> Stepper | None: ...


@overload
def show(
    *,
    compare: Sequence[Trace | LiveSession],
    step: int | None = ...,
    stage: str | int | None = ...,
    lang: str = ...,
    profile: Profile | None = ...,
    large: bool = ...,
) -> CompareView | None: ...


def show(
    what: Trace | LiveSession | None = None,
    *,
    compare: Sequence[Trace | LiveSession] | None = None,
    step: int | None = None,
    stage: str | int | None = None,
    lang: str = "en",
    profile: Profile | None = None,
    counterfactuals: bool | Mapping[int, Any] = False,
    mask: str | Sequence[str] | None = None,
    notes: Notes | None = None,
    large: bool = False,
) -> Stepper | CompareView | None:
    """Show a trace, or a session that can go on, or two runs side by side. Returns the widget; None if static.

    compare: two traces in place of ``what``, aligned by step; what differs is named and marked. step: index into the
    steps, negative from the end; of a comparison, None is the first difference. stage: 0 to 9, an engine stage name or
    a label. counterfactuals: True proves, for every eager step, what would have put it on a graph (each is a few
    re-runs of the workload); or the answers of ``lab.counterfactual`` by index. A live widget also proves one when the
    reader asks. profile: None is live in a notebook, unless ``LAB_STATIC=1``, and static elsewhere.
    A teacher's options: mask hides parts until somebody asks (``m``, or a button): of "path", "reason", "bucket",
    "key", "checklist", "deferrals", "padding", "next" and the stages' names, one or several. notes: plain words beside
    a run, a step or a stage: a text, or texts by step or (step, stage); (None, stage) is that stage of every step.
    large: large type, for a projector (``l`` on the screen).
    Raises: ConfigError for anything that is not there; TraceError when a trace cannot be run again.
    """
    chosen = _profile(profile)
    if lang not in LANGUAGES:
        message = f"lang must be one of {', '.join(LANGUAGES)}, got {shown(lang)}"
        raise ConfigError(message)
    if compare is not None:
        if what is not None or counterfactuals is not False or mask is not None or notes is not None:
            message = "show takes one run with its counterfactuals, mask and notes, or compare=(a, b), not both"
            raise ConfigError(message)
        found = comparing.compare(*comparing.pair(compare))
        if chosen == "live":
            return CompareView(found, step=step, stage=stage, lang=lang, large=large)
        _show_two(found, step=step, stage=stage, lang=lang, large=make_lesson(int, large=large).large)
        return None
    session = None if isinstance(what, Trace) else what
    if not isinstance(what, Trace) and not isinstance(cast("Any", getattr(what, "trace", None)), Trace):
        message = f"show takes a Trace or a Session, got {type(what).__name__}"
        raise ConfigError(message)
    trace = cast("Any", what) if session is None else session.trace
    grows = session is not None and not session.is_finished
    lesson = make_lesson(step_numbers(trace, grows=grows), mask=mask, notes=notes, large=large)
    if chosen == "live":
        answers = wanted(trace, counterfactuals)
        return Stepper(trace, session=session, step=step, stage=stage, lang=lang, whatifs=answers, lesson=lesson)
    _show_static(trace, lesson, step=step, stage=stage, lang=lang, counterfactuals=counterfactuals)
    return None


def _show_two(
    found: comparing.Comparison, *, step: int | None, stage: str | int | None, lang: str, large: bool
) -> None:
    """Leave the sentence, the list of differences and one page for each run."""
    from lab.widgets import static

    panel = stage_index(stage)

    if not len(found.left) or not len(found.right):
        message = "a static view needs at least one step of each run; run the sessions first"
        raise ConfigError(message)
    if not _is_notebook():
        sys.stdout.write(f"{found.sentence(lang)}\n{_ELSEWHERE}\n")
        return
    from IPython.display import publish_display_data

    first = found.first
    start = first.indices[0] if step is None and first is not None else step
    index = step_index(start, len(found.left))
    for bundle in static.outputs_of_two(found, index, panel, lang, large=large):
        publish_display_data(bundle)


def _profile(asked: object) -> str:
    """Return the profile that was asked for, or the one that suits the process. Raises: ConfigError."""
    if asked is None:
        return "live" if _is_notebook() and os.environ.get("LAB_STATIC") != "1" else "static"
    if asked not in ("live", "static"):
        message = f"profile must be 'live' or 'static', got {shown(asked)}"
        raise ConfigError(message)
    return str(asked)


def _is_notebook() -> bool:
    """Whether the process is a notebook's kernel; a plain script and a terminal have none."""
    shell = sys.modules.get("IPython")  # a kernel has imported it
    return shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None


def _show_static(
    trace: Trace,
    lesson: Lesson,
    *,
    step: int | None,
    stage: str | int | None,
    lang: str,
    counterfactuals: bool | Mapping[int, Any],
) -> None:
    from lab.widgets import static  # the pages are made for saved notebooks only

    if not len(trace.steps):
        message = "a static view needs at least one step; run the session first"
        raise ConfigError(message)
    index, panel = step_index(step, len(trace.steps)), stage_index(stage)
    if not _is_notebook():
        said = f"{trace.explain(index, lang)}\n{trace.summary()}"
        if lesson.mask or lesson.notes:
            said = static.make_lesson_text(trace, index, panel, lang, lesson)
        sys.stdout.write(f"{said}\n{_ELSEWHERE}\n")
        return
    from IPython.display import publish_display_data

    answers = wanted(trace, counterfactuals)
    for bundle in static.outputs(trace, index, panel, lang, whatifs=answers, lesson=lesson):
        publish_display_data(bundle)

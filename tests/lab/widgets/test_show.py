"""show, in a notebook and in the static profile."""

import base64
import re
import zlib
from types import SimpleNamespace

import IPython.display
import numpy as np
import pytest

from engine.errors import ConfigError, TraceError
from lab.trace import Trace
from lab.widgets.compare_view import CompareView
from lab.widgets.show import show
from lab.widgets.stepper import Stepper
from tests.lab.sample_steps import sample_header, sample_trace


@pytest.fixture
def published(monkeypatch):
    shown = []
    monkeypatch.setattr(IPython.display, "publish_display_data", lambda data, **_: shown.append(data))
    monkeypatch.setattr(
        IPython, "get_ipython", lambda: SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda _: {}))
    )
    return shown


class Open:
    """A session that can go on."""

    trace = sample_trace(2)
    is_finished = False


def unpacked(bundle):
    """Return the page that a frame carries."""
    packed = re.search(r"atob\(&quot;([^&]+)&quot;\)", bundle["text/html"])[1]
    return zlib.decompress(base64.b64decode(packed)).decode()


def test_a_trace_becomes_a_widget(published, monkeypatch):
    monkeypatch.delenv("LAB_STATIC", raising=False)
    widget = show(sample_trace(3), step=1, stage="Run", lang="zh")
    assert isinstance(widget, Stepper)
    assert (widget.step, widget.stage, widget.lang, widget.is_live) == (1, 7, "zh", False)
    widget.close()


def test_a_session_becomes_a_live_widget(published, monkeypatch):
    monkeypatch.delenv("LAB_STATIC", raising=False)
    widget = show(Open())
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


@pytest.mark.parametrize("shell", [None, SimpleNamespace()], ids=["plain script", "terminal"])
def test_outside_of_a_notebook_the_static_profile_is_one_text(published, monkeypatch, capsys, shell):
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    monkeypatch.delenv("LAB_STATIC", raising=False)
    trace = sample_trace(5)
    assert show(trace, step=2) is None
    out = capsys.readouterr().out
    assert published == []
    assert out.startswith(f"{trace.explain(2)}\n{trace.summary()}\n")
    assert "Pictures need a notebook" in out
    assert "`stepscope trace show FILE`" in out


def test_what_cannot_be_shown_is_said(published):
    with pytest.raises(ConfigError, match="show takes a Trace or a Session, got str"):
        show("trace.json")
    with pytest.raises(ConfigError, match="show takes a Trace or a Session, got NoneType"):
        show(None)
    with pytest.raises(ConfigError, match=r"profile must be 'live' or 'static', got 'png'"):
        show(sample_trace(2), profile="png")
    with pytest.raises(ConfigError, match="needs at least one step"):
        show(Trace(sample_header(), []), profile="static")
    assert published == []


class Answer:
    say = (("whatif.change", {"field": "CudaGraphConfig.enabled", "before": "False", "after": "True"}),)


@pytest.mark.parametrize("profile", ["live", "static"])
def test_proofs_are_shipped_when_they_are_given(published, profile):
    widget = show(sample_trace(3), profile=profile, counterfactuals={0: Answer()})
    if widget is None:
        assert "CudaGraphConfig.enabled" in unpacked(published[2])
    else:
        assert widget.whatifs == {"0": list(Answer.say)}
        widget.close()


def test_every_eager_step_of_a_real_trace_is_proved_on_demand(light_trace):
    widget = show(light_trace, profile="live", counterfactuals=True)
    eager = {str(step.step) for step in light_trace.steps if step.graph.path == "eager"}
    assert set(widget.whatifs) == eager
    widget.close()


def test_a_trace_that_cannot_be_run_again_is_one_error(light_trace):
    with pytest.raises(TraceError, match="this trace cannot be run again: it is redacted"):
        show(light_trace.redact(), profile="live", counterfactuals=True)


@pytest.mark.parametrize("profile", ["live", "static"])
def test_a_teacher_s_link_hides_parts_and_has_notes_and_large_type(published, profile):
    notes = {(2, "PACKED"): "Count </script> the rows.", (0, None): "Elsewhere."}
    options = {"step": 2, "stage": "PACKED", "mask": ("path", "next"), "notes": notes, "large": True}
    widget = show(sample_trace(4), profile=profile, **options)
    if widget is None:
        picture, table, page = published
        assert picture["text/plain"] == "Step 2: 3 requests decode.\nCount </script> the rows."
        assert "replay" not in table["text/html"] + table["text/plain"]
        assert table["text/html"].count("<tr>") == 4  # the head, and no step to come
        assert '"large": true' in unpacked(page)
        assert r"Count \u003c/script> the rows." in unpacked(page)
    else:
        assert (set(widget.mask), widget.notes, widget.large) == (
            {"path", "next"},
            {"2/4": notes[2, "PACKED"], "0": "Elsewhere."},
            True,
        )
        widget.close()


def test_in_a_terminal_a_hidden_part_is_not_told_either(monkeypatch, capsys):
    monkeypatch.delenv("LAB_STATIC", raising=False)
    assert show(sample_trace(4), step=2, mask="bucket", notes="Which bucket?") is None
    out = capsys.readouterr().out
    assert out.startswith("Step 2: 3 requests decode.\nWhich bucket?\n")
    assert "graph for" not in out


def test_a_live_run_takes_notes_for_steps_to_come_and_a_recorded_one_does_not():
    with pytest.raises(ConfigError, match="step must be from -2 to 1 in a trace of 2 steps, got 5"):
        show(sample_trace(2), notes={5: "later"}, profile="live")
    widget = show(Open(), notes={5: "later"}, profile="live")
    assert widget.notes == {"5": "later"}
    widget.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mask": "keys"}, "mask hides any of path, reason, bucket"),
        ({"notes": 3}, "notes must be a text"),
        ({"large": 2}, "large must be True or False, got 2"),
    ],
)
def test_a_wrong_choice_of_a_teacher_is_one_error_that_names_what_is_allowed(options, words):
    with pytest.raises(ConfigError, match=words):
        show(sample_trace(2), profile="live", **options)


def test_two_traces_are_shown_side_by_side(published, monkeypatch):
    monkeypatch.delenv("LAB_STATIC", raising=False)
    widget = show(compare=(sample_trace(5), sample_trace(3)), stage="Run")
    assert isinstance(widget, CompareView)
    assert (widget.left.step, widget.left.stage, widget.right.stage) == (3, 7, 7)
    widget.close()
    assert show(compare=(sample_trace(5), sample_trace(3)), profile="static") is None
    assert published[0]["text/plain"].startswith("The first difference is in step 3")
    assert published[0]["text/html"].count("<tr>") == 3
    assert [data["text/plain"] for data in published[1:]] == ["Run A", "Run B"]
    with pytest.raises(
        ConfigError, match=r"show takes one run with its counterfactuals, mask and notes, or compare=\(a, b\), not both"
    ):
        show(sample_trace(2), compare=(sample_trace(2), sample_trace(2)))


WRONG = [
    ({"lang": []}, r"lang must be one of en, zh, got \[\]"),
    ({"lang": "fr"}, "lang must be one of en, zh, got 'fr'"),
    ({"stage": "lunch"}, r"stage must be 0 to 12 or one of Schedule \(SCHEDULED\)"),
    ({"stage": []}, r"stage must be 0 to 12 or one of Schedule \(SCHEDULED\), .* got \[\]"),
    ({"profile": []}, r"profile must be 'live' or 'static', got \[\]"),
    ({"large": 1}, "large must be True or False, got 1"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
@pytest.mark.parametrize("profile", ["live", "static"])
@pytest.mark.parametrize("shown", [{"what": sample_trace(2)}, {"compare": (sample_trace(2), sample_trace(3))}])
def test_what_is_wrong_is_refused_alike_in_a_notebook_and_outside(shown, profile, options, words):
    with pytest.raises(ConfigError, match=words):
        show(**{"profile": profile, **shown, **options})


@pytest.mark.parametrize("options", [{"mask": []}, {"mask": np.array(["path", "next"])}, {"notes": {}}])
def test_two_runs_take_no_lesson_not_even_an_empty_one(options):
    with pytest.raises(ConfigError, match=r"show takes one run with its counterfactuals, mask and notes, or compare"):
        show(compare=(sample_trace(2), sample_trace(3)), **options)

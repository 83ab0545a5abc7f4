"""The widget's Python side: what it ships, how it answers its views, and how its errors show."""

import json
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from engine.errors import ConfigError, TraceError
from lab.snapshot import LAYERS, ROW_KINDS, ROW_SOURCES, WRITERS
from lab.trace import Trace
from lab.widgets import frames, stepper
from lab.widgets.lesson import make_lesson, step_numbers
from lab.widgets.masks import PARTS as PARTS_OF_MASK
from lab.widgets.squeeze import squeeze
from lab.widgets.stepper import Stepper, join_esm, read_css, read_part
from lab.widgets.whatif import WHAT_IF_WORDS
from tests.lab.sample_steps import decode_step, eager_step, sample_header, sample_trace

ESM = Path(stepper.__file__).parent / "esm"
PARTS = sorted(ESM.glob("*.js"))
READERS = "step, stage, selected, lang, predict_from, answers, ask, cell, revealed, large"


class Plan:
    """A session that has ``total`` steps, of which some were run already."""

    def __init__(self, total, done=1):
        self.total = total
        self.steps = [eager_step(0)][:done]
        self.error: BaseException | None = None

    @property
    def trace(self):
        return Trace(sample_header(), tuple(self.steps))

    @property
    def is_finished(self):
        return len(self.steps) >= self.total

    def step(self):
        if self.error is not None:
            raise self.error
        self.steps.append(decode_step(len(self.steps), batch=1))
        return self.steps[-1]


class Sent:
    """What a stepper sent to its views."""

    def __init__(self, widget):
        self.messages = []
        widget.send = lambda content, buffers=None: self.messages.append((content, buffers))

    def parts(self):
        return [json.loads(zlib.decompress(b[0])) for c, b in self.messages if c["type"] == "frames"]


def ask(widget, kind="run", have=0, view="v", seq=1):
    widget._handle_custom_msg({"type": kind, "have": have, "view": view, "seq": seq}, [])


@pytest.fixture
def live():
    widget = Stepper.live(Plan(3))
    yield widget, Sent(widget)
    widget.close()


def test_a_trace_is_shipped_whole_with_both_languages():
    widget = Stepper.from_trace(sample_trace(4), step=-1, stage="PACKED", lang="zh")
    part = json.loads(zlib.decompress(widget.trace))
    assert [frame["s"] for frame in part["frames"]] == [0, 1, 2, 3]
    assert (widget.step, widget.stage, widget.lang, widget.is_live) == (3, 4, "zh", False)
    assert widget.words["en"]["stage.4"] == "Pack"
    assert widget.words["zh"]["stage.4"] == "打包"
    widget.close()


def test_a_real_trace_is_shipped(full_trace):
    widget = Stepper(full_trace, step=2, stage="Choose graph")
    assert widget.num_steps == len(full_trace)
    assert widget.stage == 3
    assert widget.sentence().startswith("Step 2 ")
    widget.close()


def test_an_unknown_language_is_refused():
    with pytest.raises(ConfigError, match=r"lang must be one of en, zh, got 'fr'"):
        Stepper(sample_trace(2), lang="fr")


def test_a_live_view_asks_and_gets_the_next_step(live):
    widget, sent = live
    ask(widget, have=0)
    [part] = sent.parts()
    assert [frame["s"] for frame in part["frames"]] == [1]
    assert sent.messages[0][0] == {"type": "frames", "view": "v", "seq": 1, "jump": True}
    assert not widget.finished
    ask(widget, have=1, seq=2)
    assert widget.finished


def test_a_view_that_lacks_frames_gets_them_before_a_new_step_is_run(live):
    widget, sent = live
    ask(widget, have=0)
    ask(widget, have=0, view="other")
    assert [frame["s"] for frame in sent.parts()[1]["frames"]] == [1]
    assert widget.num_steps == 2


def test_a_page_that_was_reloaded_catches_up_without_running_anything(live):
    widget, sent = live
    ask(widget, have=0)
    ask(widget, kind="sync", have=-1)
    assert [frame["s"] for frame in sent.parts()[1]["frames"]] == [0, 1]
    assert sent.messages[1][0]["jump"] is False
    assert widget.num_steps == 2


def test_a_finished_session_is_not_stepped(live):
    widget, sent = live
    for have in (0, 1, 2, 2):
        ask(widget, have=have)
    assert widget.num_steps == 3
    assert sent.parts()[-1]["frames"] == []


def test_a_session_without_steps_starts_empty():
    widget = Stepper.live(Plan(2, done=0))
    sent = Sent(widget)
    ask(widget, have=-1)
    assert [frame["s"] for frame in sent.parts()[0]["frames"]] == [0]
    widget.close()


def test_an_error_of_a_step_shows_in_the_widget_and_is_raised_under_test(live):
    widget, sent = live
    widget._session.error = RuntimeError("the device is gone")
    with pytest.raises(RuntimeError, match="the device is gone"):
        ask(widget, have=0)
    assert widget.alert == "RuntimeError: the device is gone"
    assert sent.messages[-1][0]["type"] == "error"
    assert sent.messages[-1][0]["text"] == widget.alert


def test_in_a_notebook_the_error_stays_in_the_widget(live, monkeypatch):
    widget, _sent = live
    widget._session.error = RuntimeError("the device is gone")
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    ask(widget, have=0)
    assert widget.alert == "RuntimeError: the device is gone"


def test_an_interrupt_frees_the_view_and_goes_on(live, monkeypatch):
    widget, sent = live
    widget._session.error = KeyboardInterrupt()
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    with pytest.raises(KeyboardInterrupt):
        ask(widget, have=0)
    assert sent.messages[-1][0]["type"] == "error"
    assert widget.num_steps == 1


def test_the_alert_goes_when_the_next_step_works(live):
    widget, _sent = live
    widget.alert = "RuntimeError: once"
    ask(widget, have=0)
    assert widget.alert == ""


def test_a_recorded_trace_cannot_run_on():
    widget = Stepper(sample_trace(2))
    with pytest.raises(ConfigError, match=r"recorded trace; Session\(...\).show\(\) can run further steps"):
        ask(widget, have=1)
    widget.close()


def test_an_unknown_message_is_an_error(live):
    widget, _sent = live
    with pytest.raises(ConfigError, match=r"a view may ask for 'run', 'sync' or 'prove', got 'jump'$"):
        ask(widget, kind="jump")


@pytest.mark.parametrize("content", [None, 5, "run", [], {}, {"type": None}, {"type": ["run"]}])
def test_a_message_that_makes_no_sense_is_one_clear_error(live, content):
    widget, sent = live
    with pytest.raises(ConfigError, match=r"a view may ask for 'run', 'sync' or 'prove', got"):
        widget._handle_custom_msg(content, [])
    assert widget.alert.startswith("ConfigError: a view may ask for")
    assert sent.messages[-1][0]["type"] == "error"


@pytest.mark.parametrize("number", [None, "3", 1.5, True, []])
def test_a_step_in_a_message_is_an_integer(live, number):
    widget, _sent = live
    for kind, field in (("run", "have"), ("sync", "have"), ("prove", "step")):
        with pytest.raises(ConfigError, match="a view names a step by an integer, got"):
            widget._handle_custom_msg({"type": kind, field: number}, [])


def test_a_view_asks_for_the_smallest_change_and_every_view_gets_it(light_trace):
    widget = Stepper(light_trace)
    sent = Sent(widget)
    eager = next(step for step in light_trace.steps if step.graph.path == "eager")
    assert widget.can_prove
    assert widget.whatifs == {}
    widget._handle_custom_msg({"type": "prove", "step": eager.step, "view": "v", "seq": 4}, [])
    assert sent.messages == [({"type": "done", "view": "v", "seq": 4}, None)]
    assert list(widget.whatifs) == [str(eager.step)]
    names = [name for name, _arguments in widget.whatifs[str(eager.step)]]
    assert set(names) <= set(WHAT_IF_WORDS)
    widget.close()


def test_a_proof_of_a_step_that_is_not_there_or_cannot_be_run_is_said(light_trace):
    widget = Stepper(light_trace)
    with pytest.raises(ConfigError, match="there is no step 999 in this run"):
        widget._handle_custom_msg({"type": "prove", "step": 999}, [])
    widget.close()
    redacted = Stepper(light_trace.redact())
    assert not redacted.can_prove
    eager = next(step for step in light_trace.steps if step.graph.path == "eager")
    with pytest.raises(TraceError, match="it is redacted"):
        redacted._handle_custom_msg({"type": "prove", "step": eager.step}, [])
    redacted.close()


@pytest.mark.parametrize(
    ("state", "words"),
    [({"step": 10**9}, "step must be an integer from 0 to 3, got 1000000000"),
     ({"step": -5}, "step must be an integer from 0 to 3, got -5"),
     ({"step": True}, "step must be an integer from 0 to 3, got True"),
     ({"stage": 99}, "stage must be an integer from 0 to 12, got 99"),
     ({"cell": "logits[0]"}, "cell must be one of input_ids, "),
     ({"revealed": [3]}, "The 'revealed' trait of a Stepper instance contains"),
     ({"lang": "fr"}, "The 'lang' trait of a Stepper instance expected any of "),
     ({"whatifs": {"0": 5}}, f"a view may set {READERS}, got 'whatifs'"),
     ({"trace": b"x"}, f"a view may set {READERS}, got 'trace'")],
)  # fmt: skip
def test_what_a_view_may_not_choose_is_refused_and_the_view_set_right(state, words, monkeypatch):
    widget = Stepper(sample_trace(4), step=2, stage=2)
    returned = []
    widget.send_state = lambda key=None: returned.append(key)
    with pytest.raises(ConfigError, match=words):
        widget.set_state({"selected": 1, **state})
    assert widget.alert.startswith(f"ConfigError: {words}")
    assert next(iter(state)) in returned[0]
    assert (widget.step, widget.stage, widget.selected, widget.lang, widget.whatifs) == (2, 2, -1, "en", {})
    assert widget.as_text().startswith("Stepper over 4 steps:")
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    widget.set_state(state)  # in a notebook the alert is all
    widget.set_state({"step": 3, "stage": 9, "lang": "zh"})
    assert (widget.step, widget.stage, widget.lang) == (3, 9, "zh")
    widget.close()


def test_a_lesson_is_shipped_and_its_hidden_parts_are_in_no_text():
    trace = sample_trace(4)
    lesson = make_lesson(step_numbers(trace), mask=("path", "next"), notes={2: "Why?"}, large=True)
    widget = Stepper(trace, step=2, lesson=lesson)
    assert widget.mask == {"path": list(PARTS_OF_MASK["path"]), "next": ["next"]}
    assert (widget.notes, widget.large, widget.revealed) == ({"2": "Why?"}, True, [])
    text = widget.as_text()
    assert "> Step 2: 3 requests decode." in text
    assert not [word for word in ("graph", "replay", "eager", "Step 3") if word in text]
    assert "replays the graph" in widget.sentence()  # who asks for it by name is told
    widget.set_state({"revealed": ["2path", "*"], "large": False})
    assert (widget.revealed, widget.large) == (["2path", "*"], False)
    widget.close()


def test_a_sentence_is_of_a_step_that_is_there(live):
    widget, _sent = live
    with pytest.raises(ConfigError, match="step must be from -1 to 0 in a trace of 1 steps, got 7"):
        widget.sentence(7)
    empty = Stepper.live(Plan(2, done=0))
    assert empty.as_text() == "Stepper over 0 steps:"
    with pytest.raises(ConfigError, match="no step yet"):
        empty.sentence()
    empty.close()


def test_a_long_message_is_quoted_in_part(live):
    widget, _sent = live
    for content in ({"type": "x" * 100_000}, {"type": "run", "have": "x" * 100_000}, "x" * 100_000):
        with pytest.raises(ConfigError, match="xxx"):
            widget._handle_custom_msg(content, [])
        assert len(widget.alert) < 200


def test_there_is_an_end_to_the_steps_that_are_kept(live, monkeypatch):
    widget, _sent = live
    monkeypatch.setattr(stepper, "MAX_STEPS", 1)
    with pytest.raises(ConfigError, match=r"at most 1 steps; start another session"):
        ask(widget, have=0)


def test_there_is_a_text_for_places_without_widgets():
    widget = Stepper(sample_trace(4), step=1)
    bundle = widget._repr_mimebundle_()
    assert bundle is not None
    text = bundle[0]["text/plain"]
    assert text.splitlines()[0] == "Stepper over 4 steps:"
    assert text.splitlines()[2].startswith("> Step 1 replays the graph")
    assert "application/vnd.jupyter.widget-view+json" in bundle[0]
    widget.close()


def test_the_module_is_small_plain_and_of_one_piece(tmp_path):
    module = join_esm()
    assert len(module.encode()) <= 80_000
    assert module.count("export default") == 1
    assert set(re.findall(r"https?://[^\"' ]*", module + read_css())) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"^\s*import\b|\bimport\(", module, re.MULTILINE)
    assert not re.search(r"\bfetch\(|localStorage|document\.(?!create)|\bwindow\.|innerHTML", module)
    node = shutil.which("node")
    if node is not None:  # where it is missing, the browser tests find a syntax error
        file = tmp_path / "stepper.mjs"
        file.write_text(module, encoding="utf-8")
        subprocess.run([node, "--check", str(file)], check=True, timeout=60)


@pytest.mark.parametrize("part", PARTS, ids=lambda path: path.stem)
def test_a_part_is_short_and_says_what_it_is(part):
    lines = part.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 350
    assert lines[0].startswith("// ")


def test_every_part_is_joined():
    assert {path.stem for path in PARTS} == {*stepper._ESM_PARTS, "fake_model"}


def test_both_sides_agree_on_codes_and_limits():
    module = squeeze("".join(read_part(part) for part in stepper._ESM_PARTS))

    def listed(name):
        return tuple(json.loads(re.search(rf"const {name}=(\[.*?\]);", module)[1]))

    def number(name):
        return int(re.search(rf"const {name}=(\d+);", module)[1])

    assert listed("KINDS") == ROW_KINDS
    assert listed("SOURCES") == ROW_SOURCES
    assert listed("WRITERS") == WRITERS
    assert listed("LAYERS") == LAYERS
    assert (number("HEAD_TOKENS"), number("TAIL_TOKENS")) == (frames.HEAD_TOKENS, frames.TAIL_TOKENS)
    assert (number("CELLS"), number("MAX_FRAMES")) == (frames.MAX_VALUES, stepper.MAX_STEPS)


def test_the_widget_leaves_torch_alone():
    code = "import lab.widgets.show, lab.widgets.static, sys; print('torch' in sys.modules)"
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "False"

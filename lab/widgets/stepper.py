"""Stepper: the widget that steps through a recorded run, or through a live session, in a notebook.

The trace is shipped once and stepped in the browser (``esm/*.js``); the kernel is asked only for the next real step of
a live session. What a reader chose (step, stage, followed request, language, predictions) lives in traits, so that a
moved cell or a second view keeps it. Every callback is wrapped: an error shows in the widget and raises under test.

Does not: encode (``frames.py``), word (``strings.py``) or record anything, or import torch.
"""

import contextlib
import os
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, cast

import anywidget
import traitlets

from engine.errors import ConfigError
from engine.fields import cut, shown
from lab.snapshot import StepSnapshot
from lab.trace import Trace
from lab.widgets.cell_widgets import close_earlier_of_this_cell
from lab.widgets.frames import FrameEncoder, deflate
from lab.widgets.lesson import NO_LESSON, Lesson
from lab.widgets.masks import hidden_parts, tellable
from lab.widgets.places import NUM_PANELS, integer, stage_index, step_index
from lab.widgets.predicted_cells import CELLS_WANTED, FIRST_CELL, parse_cell
from lab.widgets.predictions import QUESTIONS, WAY, record
from lab.widgets.shorten import shorten
from lab.widgets.strings import LANGUAGES, table, told
from lab.widgets.whatif import Answers, can_prove, prove

MAX_STEPS: Final = 10_000  # the same number stands in esm/store.js
_ESM_PARTS: Final = (
    "dom",
    "text",
    "store",
    "panel_schedule",
    "panel_graph",
    "panel_rows",
    "panel_buffers",
    "panel_run",
    "panel_ledger",
    "panel_overlap",
    "timeline",
    "frame",
    "overlays",
    "lesson",
    "predict",
    "context",
    "main",
)
_FOLDER: Final = Path(__file__).parent / "esm"
_OF_THE_READER: Final = (
    "step",
    "stage",
    "selected",
    "lang",
    "predict_from",
    "answers",
    "ask",
    "cell",
    "revealed",
    "large",
)  # all that a view may set
_ASKED: Final = "the session gave no step: it is finished, or the step failed and was undone"


class LiveSession(Protocol):
    """What the stepper needs of a session: ``lab.session.Session`` is one."""

    @property
    def trace(self) -> Trace:
        """The run so far."""
        ...

    @property
    def is_finished(self) -> bool:
        """Whether no step is left."""
        ...

    def step(self) -> StepSnapshot | None:
        """Run one step."""
        ...


def read_part(name: str) -> str:
    """Return one JavaScript file as it is written."""
    return (_FOLDER / f"{name}.js").read_text(encoding="utf-8")


def join_esm() -> str:
    """Join the parts to one module, without what is there for the reader of the files."""
    return shorten("".join(read_part(part) for part in _ESM_PARTS))


def read_css() -> str:
    """Return the style sheet: that of the stages, then that of the views."""
    return "".join((_FOLDER / f"{name}.css").read_text(encoding="utf-8") for name in ("stepper", "views"))


class Stepper(anywidget.AnyWidget):
    """A trace, step by step, forwards and backwards; ``session`` adds the next real step on demand.

    step: index into ``trace.steps``. stage: 0 to 9, or a view's number behind them; an engine stage name or a label.
    lang: "en" or "zh".
    """

    _esm = join_esm()
    _css = read_css()

    trace = traitlets.Bytes(b"").tag(sync=True)
    words = traitlets.Dict({}).tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    stage = traitlets.Int(0).tag(sync=True)
    selected = traitlets.Int(-1).tag(sync=True)
    lang = traitlets.Enum(LANGUAGES, default_value="en").tag(sync=True)
    predict_from = traitlets.Int(-1).tag(sync=True)
    answers = traitlets.Dict({}).tag(sync=True)
    ask = traitlets.Enum(QUESTIONS, default_value=WAY).tag(sync=True)
    cell = traitlets.Unicode(FIRST_CELL).tag(sync=True)
    mask = traitlets.Dict({}).tag(sync=True)
    revealed = traitlets.List(traitlets.Unicode(), maxlen=MAX_STEPS).tag(sync=True)
    notes = traitlets.Dict({}).tag(sync=True)
    large = traitlets.Bool(default_value=False).tag(sync=True)
    is_live = traitlets.Bool(default_value=False).tag(sync=True)
    finished = traitlets.Bool(default_value=False).tag(sync=True)
    alert = traitlets.Unicode("").tag(sync=True)
    whatifs = traitlets.Dict({}).tag(sync=True)
    can_prove = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(
        self,
        trace: Trace,
        *,
        session: LiveSession | None = None,
        step: int | None = None,
        stage: str | int | None = None,
        lang: str = "en",
        whatifs: Answers | None = None,
        lesson: Lesson = NO_LESSON,
    ) -> None:
        """Ship the trace. whatifs: proved changes by step number. lesson: what a teacher adds.

        Raises: ConfigError for what is not there.
        """
        if lang not in LANGUAGES:
            message = f"lang must be one of {', '.join(LANGUAGES)}, got {shown(lang)}"
            raise ConfigError(message)
        self._session = session
        self._trace = trace
        encoder = FrameEncoder(trace)
        self._encoder = encoder
        super().__init__(
            trace=deflate(encoder.part()),
            words={language: table(language) for language in LANGUAGES},
            step=step_index(step, len(encoder.frames)),
            stage=stage_index(stage),
            lang=lang,
            is_live=session is not None,
            finished=session is not None and session.is_finished,
            whatifs=whatifs or {},
            can_prove=can_prove(trace),
            mask=dict(lesson.mask),
            notes=dict(lesson.notes),
            large=lesson.large,
        )
        close_earlier_of_this_cell(self)

    @classmethod
    def from_trace(
        cls, trace: Trace, step: int | None = 0, stage: str | int | None = None, lang: str = "en"
    ) -> "Stepper":
        """Step through a recorded trace."""
        return cls(trace, step=step, stage=stage, lang=lang)

    @classmethod
    def live(cls, session: LiveSession, **options: Any) -> "Stepper":
        """Step through a session and let the reader ask for its next step."""
        return cls(session.trace, session=session, **options)

    @property
    def num_steps(self) -> int:
        """Steps shipped so far."""
        return len(self._encoder.frames)

    def sentence(self, index: int | None = None) -> str:
        """Return what the stepper says about a step, in its language. Raises: ConfigError."""
        if not self.num_steps:
            message = "this stepper has no step yet, so it has no sentence; run the session first"
            raise ConfigError(message)
        said = self._encoder.frames[step_index(self.step if index is None else index, self.num_steps)]["say"]
        return told(said, self.lang)

    @traitlets.validate("step", "stage")
    def _check_place(self, proposal: Any) -> int:
        """Keep the chosen step and stage where there is one, whoever sets them."""
        name, value = proposal["trait"].name, proposal["value"]
        count = max(1, self.num_steps) if name == "step" else NUM_PANELS
        if integer(value) is None or not 0 <= value < count:
            message = f"{name} must be an integer from 0 to {count - 1}, got {shown(value)}"
            raise traitlets.TraitError(message)
        return value

    def set_state(self, sync_data: Mapping[str, Any]) -> None:
        """Take what a view chose: all of it, or nothing and one error; then the view gets the old values back."""
        with self._alerting({}):
            try:
                _require_the_readers(name for name in sync_data if name in self.keys)
                super().set_state(sync_data)
            except (ConfigError, traitlets.TraitError) as error:
                self.send_state([name for name in sync_data if name in self.keys])
                raise ConfigError(cut(error)) from error

    @traitlets.validate("cell")
    def _check_cell(self, proposal: Any) -> str:
        """Keep the cell that is asked about one that a step may have."""
        if parse_cell(proposal["value"]) is None:
            message = f"cell must be {CELLS_WANTED}, got {shown(proposal['value'])}"
            raise traitlets.TraitError(message)
        return proposal["value"]

    @traitlets.observe("answers")
    def _write_answers(self, change: dict[str, Any]) -> None:
        """Write down what a reader predicted in a view, beside the notebook."""
        with self._alerting({}):
            record(self._trace if self._session is None else self._session.trace, change["old"], change["new"])

    def _handle_custom_msg(self, content: object, buffers: object) -> None:
        """Answer a view: run takes the next step, sync sends what the view lacks, prove finds what helps a step."""
        facts = cast("Mapping[str, Any]", content) if isinstance(content, Mapping) else {}
        with self._alerting(facts):
            kind = facts.get("type")
            if kind not in ("run", "sync", "prove"):
                message = f"a view may ask for 'run', 'sync' or 'prove', got {shown(facts.get('type', content))}"
                raise ConfigError(message)
            number = integer(facts.get("step" if kind == "prove" else "have", -1))
            if number is None:
                message = f"a view names a step by an integer, got {shown(content)}"
                raise ConfigError(message)
            if kind == "prove":
                self._prove(number)
                self.send({"type": "done", "view": facts.get("view"), "seq": facts.get("seq")})
                return
            # A view that lacks frames gets those; running one more is for a view that has seen all there is.
            if kind == "run" and number >= self._encoder.last_step:
                self._run_one()
            self._send_frames(facts, number, jump=kind == "run")

    def _prove(self, step: int) -> None:
        """Run the workload again until a change is proved to put the step on a graph, and ship the answer."""
        trace = self._trace if self._session is None else self._session.trace
        at = next((at for at, one in enumerate(trace.steps) if one.step == step), None)
        if at is None:
            message = f"there is no step {shown(step)} in this run, so nothing can be proved of it"
            raise ConfigError(message)
        self.whatifs = {**self.whatifs, **prove(trace, [at], model=self._model())}

    def _model(self) -> object:
        """Return the session's model, so that it need not be loaded again; a compiled one belongs to its engine."""
        llm: Any = getattr(self._session, "llm", None)
        return None if llm is None or llm.config.torch_compile else llm.loaded

    def _run_one(self) -> None:
        session = self._session
        if session is None:
            message = "this stepper shows a recorded trace; Session(...).show() can run further steps"
            raise ConfigError(message)
        if self.num_steps >= MAX_STEPS:
            message = f"the stepper keeps at most {MAX_STEPS} steps; start another session"
            raise ConfigError(message)
        if not session.is_finished:
            snapshot = session.step()
            trace = session.trace
            # Steps that somebody ran outside of the widget since then come along.
            self._encoder.extend(trace.steps, trace.header)
            self.alert = "" if snapshot is not None or session.is_finished else _ASKED
        self.finished = session.is_finished

    def _send_frames(self, content: Mapping[str, Any], have: int, *, jump: bool) -> None:
        part = self._encoder.part(self._encoder.index_after(have))
        answer = {"type": "frames", "view": content.get("view"), "seq": content.get("seq"), "jump": jump}
        self.send(answer, buffers=[deflate(part)])

    @contextlib.contextmanager
    def _alerting(self, content: Mapping[str, Any]) -> Generator[None]:
        """Show an error of a callback in the widget, where a notebook would lose it; raise it again under test."""
        try:
            yield
        except BaseException as error:
            self.alert = f"{type(error).__name__}: {cut(error, 1000)}"
            self.send({"type": "error", "view": content.get("view"), "seq": content.get("seq"), "text": self.alert})
            if "PYTEST_CURRENT_TEST" in os.environ or not isinstance(error, Exception):  # an interrupt goes on
                raise

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Add a text and a table for places without widgets."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        return {**data, "text/plain": self.as_text()}, metadata

    def as_text(self) -> str:
        """Return the run in words: one line a step around the chosen one; hidden parts stay hidden."""
        first, hidden = max(0, self.step - 4), hidden_parts(self.mask)
        chosen = range(first, self.step + 1 if "next" in hidden else min(self.num_steps, first + 9))
        lines = [
            f"{'>' if at == self.step else ' '} {told(tellable(self._encoder.frames[at]['say'], hidden), self.lang)}"
            for at in chosen
        ]
        return "\n".join([f"Stepper over {self.num_steps} steps:", *lines])


def _require_the_readers(names: Iterable[str]) -> None:
    for name in names:
        if name not in _OF_THE_READER:
            message = f"a view may set {', '.join(_OF_THE_READER)}, got {shown(name)}"
            raise ConfigError(message)

"""Playground: native controls around a small engine: set budgets, buckets and policy, run, look, and compare.

*Run* runs the workload to its end under the settings, shows the trace, and says how it differs from the run before;
with *step by hand* it stays open: the viewer takes the next step, and requests join or are aborted meanwhile. Settings
that do not fit are said in place, in the engine's own words; what was shown stays.

Does not: read settings (``play_settings.py``), compare (``compare.py``), or import torch: who opens it passes what
makes a session.
"""

import contextlib
import dataclasses
import html
import os
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Protocol, cast, get_args

import ipywidgets

from engine.config import CapacityPolicyName, ChunkingName
from engine.errors import ConfigError, StepscopeError
from engine.fields import cut, shown
from lab.trace import Trace
from lab.widgets.compare import compare
from lab.widgets.compare_view import CompareView
from lab.widgets.play_settings import Batching, Settings
from lab.widgets.stepper import LiveSession, Stepper
from lab.widgets.strings import LANGUAGES, translate

MAX_STEPS: Final = 2000  # of a run to the end
_BATCHING: Final = tuple(field.name for field in dataclasses.fields(Batching))
_WIDE: Final = {"description_width": "9em"}
_ABOVE: Final = {"width": "auto", "flex_flow": "column"}


class OpenSession(LiveSession, Protocol):
    """What the playground needs of a session: ``lab.session.Session`` is one."""

    @property
    def running(self) -> tuple[int, ...]:
        """The requests that have joined and not finished."""
        ...

    def run(self, max_steps: int = ...) -> Trace:
        """Step to the end."""
        ...

    def add(self, prompt: str, params: Any = ...) -> int:
        """Let a request join."""
        ...

    def abort(self, request_id: int) -> None:
        """End a request."""
        ...

    def close(self) -> None:
        """Give the engine back."""
        ...


class Playground(ipywidgets.VBox):
    """Settings, a Run button, and the run. trace: the last run's. viewer: what shows it. session: when it is open."""

    _is_made = False  # ipywidgets closes what it could not make, too

    def __init__(self, open_session: Callable[..., OpenSession], *, lang: str = "en", **settings: Any) -> None:
        """Make the controls; nothing runs yet. settings: fields of Settings and Batching. Raises: ConfigError."""
        if lang not in LANGUAGES:
            message = f"lang must be one of {', '.join(LANGUAGES)}, got {shown(lang)}"
            raise ConfigError(message)
        self._open = open_session
        self._lang = lang
        self._num_runs = 0
        self.trace: Trace | None = None
        self.session: OpenSession | None = None
        self.viewer: Stepper | CompareView | None = None
        self.controls = self._make_controls(_start(settings))
        self.live = ipywidgets.Checkbox(description=self._t("play.live"), indent=False)
        self.beside = ipywidgets.Checkbox(description=self._t("play.beside"), indent=False)
        self.run_button = ipywidgets.Button(description=self._t("play.run"), button_style="primary", layout=_edged())
        self.run_button.on_click(self._pressed(self.run))
        self.alert = ipywidgets.HTML()
        self.said = ipywidgets.HTML(_paragraphs("status", self._t("play.ready")))
        self._make_live_bar()
        self._place = ipywidgets.VBox()
        grid = ipywidgets.GridBox(
            [control for name, control in self.controls.items() if name != "prompts"],
            layout=ipywidgets.Layout(grid_template_columns="repeat(auto-fit, minmax(23em, 1fr))"),
        )
        bar = ipywidgets.HBox([self.run_button, self.live, self.beside], layout=ipywidgets.Layout(flex_flow="row wrap"))
        title = ipywidgets.HTML(f"<h3>{html.escape(self._t('play.title'))}</h3>")
        parts = [title, self.controls["prompts"], grid, bar, self.alert, self.said, self.live_bar, self._place]
        super().__init__(parts)
        self._is_made = True

    def settings(self) -> Settings:
        """Return what the controls say."""
        values = {name: control.value for name, control in self.controls.items()}
        batching = Batching(**{name: values.pop(name) for name in _BATCHING})
        return Settings(batching=batching, **values)

    def run(self) -> None:
        """Run under the settings, show the run, and say how it differs from the one before."""
        with self._alerting(), self._busy():
            settings = self.settings()
            prompts, params, config = settings.arrivals(), settings.params(), settings.config()
            self._close_session()
            session = self._open(prompts=prompts, params=params, config=config)
            if self.live.value:
                self._hold(session)
                return
            try:
                trace, is_whole = session.run(MAX_STEPS), session.is_finished
            finally:
                session.close()
            self._show_run(trace, is_whole=is_whole)

    def add(self) -> None:
        """Let a request with the typed prompt join the open session."""
        with self._alerting():
            who = self._require_session().add(self.new_prompt.value, self.settings().params())
            self._refresh()
            self.said.value = _paragraphs("status", self._t("play.added", who=who))

    def abort(self) -> None:
        """End the chosen request of the open session."""
        with self._alerting():
            session, who = self._require_session(), self.who.value
            if who is None:
                raise ConfigError(self._t("play.nobody"))
            session.abort(who)
            self._refresh()
            self.said.value = _paragraphs("status", self._t("play.aborted", who=who))

    def close(self) -> None:
        """Close the session and everything that is shown."""
        if self._is_made:
            self._close_session()
            self._replace(None)
        super().close()

    def _t(self, name: str, **arguments: Any) -> str:
        return translate(name, arguments, self._lang)

    def _make_controls(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Make one native control a field, named by it."""
        made: dict[str, Any] = {"prompts": ipywidgets.Textarea(rows=5, layout=_ABOVE)}
        for name in ("max_tokens", "max_batch_size", "max_num_tokens"):
            made[name] = ipywidgets.IntText(description=self._t(f"play.{name}"))
        made["policy"] = ipywidgets.Dropdown(options=get_args(CapacityPolicyName), description=self._t("play.policy"))
        ways = [(self._t("play.none"), None), *((name, name) for name in get_args(ChunkingName))]
        made["chunking"] = ipywidgets.Dropdown(options=ways, description=self._t("play.chunking"))
        for name in ("buckets", "prefill", "blocks"):
            made[name] = ipywidgets.Text(description=self._t(f"play.{name}"))
        for name in ("graphs", "padding", "overlap"):
            made[name] = ipywidgets.Checkbox(description=self._t(f"play.{name}"))
        made["prompts"].description = self._t("play.prompts")
        for name, control in made.items():
            control.style = _WIDE if name != "prompts" else {"description_width": "max-content"}  # it stands above
            control.value = start[name]
        return made

    @staticmethod
    def _pressed(action: Callable[[], None]) -> Callable[[Any], None]:
        """Return the action as a callback, which gets the button or the change and needs neither."""

        def call(_: Any) -> None:
            action()

        return call

    def _make_live_bar(self) -> None:
        self.new_prompt = ipywidgets.Text(description=self._t("play.new"), value="Hello", style=_WIDE)
        self.who = ipywidgets.Dropdown(description=self._t("play.who"), style=_WIDE)
        add = ipywidgets.Button(description=self._t("play.add"), layout=_edged())
        abort = ipywidgets.Button(description=self._t("play.abort"), layout=_edged())
        add.on_click(self._pressed(self.add))
        abort.on_click(self._pressed(self.abort))
        layout = ipywidgets.Layout(flex_flow="row wrap", display="none")
        self.live_bar = ipywidgets.HBox([self.new_prompt, add, self.who, abort], layout=layout)

    def _show_run(self, trace: Trace, *, is_whole: bool) -> None:
        before, self.trace = self.trace, trace
        self._num_runs += 1
        facts = {
            "run": self._num_runs,
            "n": len(trace),
            "eager": sum(step.graph.path == "eager" for step in trace.steps),
            "padding": sum(step.num_padding_rows for step in trace.steps),
        }
        lines = [self._t("play.ran", **facts)]
        if not is_whole:
            lines.append(self._t("play.cut", n=MAX_STEPS))
        found = None if before is None else compare(before, trace)
        if found is not None:
            lines.append(self._t("play.against", sentence=found.sentence(self._lang)))
        self.said.value = _paragraphs("status", *lines)
        if found is not None and self.beside.value and len(found.left) and len(found.right):
            self._replace(CompareView(found, lang=self._lang))
        else:
            self._replace(Stepper(trace if found is None else found.right, lang=self._lang))

    def _hold(self, session: OpenSession) -> None:
        """Keep a session open: the viewer steps it, the bar below the buttons lets requests join and leave."""
        self.session = session
        self._num_runs += 1
        viewer = Stepper.live(session, lang=self._lang)
        viewer.observe(self._pressed(self._refresh), ["step", "finished"])
        self._replace(viewer)
        self._refresh()
        self.live_bar.layout.display = "flex"
        self.said.value = _paragraphs("status", self._t("play.opened", run=self._num_runs))

    def _refresh(self) -> None:
        """Bring the list of running requests and the viewer's Run button up to date."""
        session = self.session
        if session is None:
            return
        chosen, running = self.who.value, session.running
        self.who.options = [(f"r{request_id}", request_id) for request_id in running]
        self.who.value = chosen if chosen in running else (running[0] if running else None)
        if isinstance(self.viewer, Stepper):
            self.viewer.finished = session.is_finished

    def _require_session(self) -> OpenSession:
        assert self.session is not None, "the bar shows while a session is open"
        return self.session

    def _close_session(self) -> None:
        """Close the open session; its trace is what the next run is compared with."""
        session, self.session = self.session, None
        self.live_bar.layout.display = "none"
        if session is not None:
            self.trace = session.trace
            session.close()

    def _replace(self, viewer: Stepper | CompareView | None) -> None:
        before, self.viewer = self.viewer, viewer
        self._place.children = [] if viewer is None else [viewer]
        if before is not None:
            before.close()

    @contextlib.contextmanager
    def _busy(self) -> Generator[None]:
        self.run_button.disabled, self.run_button.description = True, self._t("play.busy")
        try:
            yield
        finally:
            self.run_button.disabled, self.run_button.description = False, self._t("play.run")

    @contextlib.contextmanager
    def _alerting(self) -> Generator[None]:
        """Say in place what the engine refuses; anything else is shown too, and raised again under test."""
        self.alert.value = ""
        try:
            yield
        except StepscopeError as error:
            self.alert.value = _paragraphs("alert", cut(error, 1000))
        except Exception as error:
            self.alert.value = _paragraphs("alert", f"{type(error).__name__}: {cut(error, 1000)}")
            if "PYTEST_CURRENT_TEST" in os.environ:
                raise


def _edged() -> Any:
    """Return the layout of a button: its edge shows in forced colours, where buttons have no ground."""
    return ipywidgets.Layout(border="1px solid transparent")


def _start(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value with which each control starts. Raises: ConfigError for a field that is not there."""
    known = {**{name: getattr(Batching(), name) for name in _BATCHING}, **_fields(Settings())}
    for name in settings:
        if name not in known:
            message = f"the playground has {', '.join(known)}, got {shown(name)}"
            raise ConfigError(message)
    return {**known, **settings}


def _fields(settings: Settings) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(cast("Any", settings))]
    return {name: getattr(settings, name) for name in names if name != "batching"}


def _paragraphs(role: str, *lines: str) -> str:
    """Return lines as HTML that a screen reader announces; an alert carries a mark besides its colour."""
    mark = '<strong aria-hidden="true">! </strong>' if role == "alert" else ""
    body = "".join(f'<p style="margin:0.2em 0;line-height:1.4">{mark}{html.escape(line)}</p>' for line in lines)
    return f'<div role="{role}">{body}</div>'

"""Trace: a recorded run as a value: a header from which it can be run again, and one snapshot a step.

On disk it is gzip-compressed JSON with base64 columns, so that any tool can open it and nothing in it can run.

Does not: record (``recorder.py``), encode steps (``store.py``), or need torch: a trace is read anywhere.
"""

import contextlib
import dataclasses
import gzip
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO, cast

import numpy as np

from engine.errors import TraceError
from engine.fields import cut, shown
from lab.explain import explain_step
from lab.ledger import LedgerState, without_text
from lab.ledger_history import ledger_after
from lab.perfetto import TimelineFacts, timeline
from lab.snapshot import SNAPSHOT_VERSION, SNAPSHOT_VERSIONS, UNKNOWN, SpanView, StepSnapshot
from lab.store import StoredSteps, encode_steps
from lab.trace_file import read_content, require_types, trace_source
from lab.trace_summary import GRAPHS, TraceSummary, count_names, counted, graph_share, path_word, summarize

__all__ = [
    "CaptureFact",
    "DeviceFacts",
    "ModelFacts",
    "RequestRecord",
    "RowMark",
    "Trace",
    "TraceHeader",
    "TraceSummary",
    "WarmupFacts",
    "graph_share",
    "trace_target",
]

FORMAT: Final = "stepscope-trace"
TRACE_VERSION: Final = 1
_HIDDEN_PARAMS: Final = ("stop", "stop_token_ids")  # redacted: they quote text


def trace_target(path: str | os.PathLike[str], *, what: str = "trace", example: str = "run.trace.json.gz") -> Path:
    """Return the file that ``save`` would write; a device, a folder or a missing folder is refused before any work.

    what, example: for a file that holds something else, such as a page. Raises: TraceError.
    """
    try:
        target = Path(path).resolve()
        is_taken = target.exists() and not target.is_file()
        is_possible = bool(target.name) and target.parent.is_dir()
    except (OSError, TypeError, ValueError) as error:
        message = f"a {what} is written to a file, and {shown(path)} cannot name one: {cut(error)}"
        raise TraceError(message) from error
    if is_taken or not is_possible:
        why = "exists and is no regular file" if is_taken else "is no file in an existing folder"
        message = f"cannot write the {what} {shown(str(path))}: it {why}; name a file such as {example}"
        raise TraceError(message)
    return target


@dataclasses.dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as it was asked for. One that was aborted before it ever had a row is in the steps' deferrals only.

    arrival_step: the first step that gave it rows; it may have waited before. prompt_token_ids, prompt_text,
    draft_tokens: None when redacted.
    """

    request_id: int
    arrival_step: int
    num_prompt_tokens: int
    prompt_token_ids: tuple[int, ...] | None
    prompt_text: str | None
    params: Mapping[str, Any]
    draft_tokens: tuple[int, ...] | None = ()
    cache_salt: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFacts:
    """Which weights ran."""

    name: str
    weight_hash: str


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Where it ran. simulated: graphs are the CPU tape."""

    device: str
    dtype: str
    attention_backend: str
    graph_backend: str
    simulated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class CaptureFact:
    """One graph captured at warm-up. Units: bytes, seconds."""

    key: str
    num_bytes: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class WarmupFacts:
    """What warm-up did before the first step. Order: as captured (largest first). Units: seconds."""

    captures: tuple[CaptureFact, ...] = ()
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class TraceHeader:
    """Everything about a run but its steps.

    mode: light or full. config: ``EngineConfig`` as plain values. buckets: captured batch sizes, ascending. versions:
    name to version. pieces: printable text of the token ids that occur. num_dropped: steps that the recorder's ring
    let go before the first one here.
    """

    mode: str
    config: Mapping[str, Any]
    model: ModelFacts
    device: DeviceFacts
    warmup: WarmupFacts
    requests: tuple[RequestRecord, ...]
    buckets: tuple[int, ...]
    versions: Mapping[str, str]
    pieces: Mapping[int, str]
    num_dropped: int = 0
    redacted: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class RowMark:
    """A row that somebody wants looked at: the step's number, the row in its flat layout, and why in a few words."""

    step: int
    row: int
    text: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trace:
    """A recorded run. ``steps[i]`` is its i-th recorded step. marks: rows to point at, by a comparison with another."""

    header: TraceHeader
    steps: Sequence[StepSnapshot]
    marks: tuple[RowMark, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        """Say the model, the steps of each path, and what is simulated; the header alone would fill the screen."""
        try:
            counts = count_names([path_word(step) for step in self.steps])
            paths = ", ".join(f"{count} {path}" for path, count in counts.items())
            paths += "; graphs simulated" * (self.header.device.simulated and bool(counts.keys() & GRAPHS))
        except TraceError:  # a debugger prints whatever it meets
            paths = "damaged"
        return f"<Trace of {self.header.model.name}: {counted(len(self), 'step')}{f' ({paths})' if paths else ''}>"

    def summary(self) -> TraceSummary:
        """Count paths, reasons, deferrals, padding and host time over all steps."""
        return summarize(self.steps, num_requests=len(self.header.requests), simulated=self.header.device.simulated)

    def place(self, i: int) -> int:
        """Return an index into the steps as one from 0 on; negative ones count from the end. Raises: TraceError."""
        count = len(self)
        if isinstance(i, bool) or not isinstance(i, int) or not -count <= i < count:
            message = f"step must be an index from {-count} to {count - 1}, got {shown(i)}"
            if not count:
                message = f"the trace has no steps, so there is no step {shown(i)}"
            raise TraceError(message)
        return i % count

    def explain(self, i: int, language: str = "en") -> str:
        """Return step ``i`` in plain words, in English ("en") or Chinese ("zh")."""
        return explain_step(self.steps[self.place(i)], self.header.pieces, language)

    def ledger(self, i: int, *, at_reservation: bool = False) -> LedgerState:
        """Return who holds which block after step ``i``, or when it had got its blocks, and what the tree keeps."""
        return ledger_after(self.steps[: self.place(i) + 1], at_reservation=at_reservation)

    def texts(self, i: int) -> dict[int, str]:
        """Return each request's text as it stands after step ``i``, as far as the recorded steps show it."""
        texts = {request.request_id: "" for request in self.header.requests}
        for step in self.steps[: self.place(i) + 1]:
            for request_id, text in step.outcome.new_text:
                texts[request_id] = texts.get(request_id, "") + text
        return texts

    def redact(self) -> "Trace":
        """Return a copy without tokens and text: lengths, paths and times stay."""
        header = dataclasses.replace(
            self.header,
            requests=tuple(_redacted_request(request) for request in self.header.requests),
            pieces={},
            redacted=True,
        )
        marks = tuple(dataclasses.replace(mark, text="") for mark in self.marks)  # a mark's text may quote tokens
        return Trace(header, [_redacted_step(step) for step in self.steps], marks)

    def save(self, path: str | os.PathLike[str], *, redact: bool = False) -> Path:
        """Write the trace, whole or not at all, and return its path."""
        trace = self.redact() if redact else self
        content = {
            "format": FORMAT,
            "version": TRACE_VERSION,
            "snapshot_version": SNAPSHOT_VERSION,
            "header": dataclasses.asdict(trace.header),
            "steps": encode_steps(trace.steps),
            "marks": [dataclasses.asdict(mark) for mark in trace.marks],
        }
        return _write_json(content, path, is_packed=True)

    def to_perfetto(self, path: str | os.PathLike[str]) -> Path:
        """Write the run as a timeline for ui.perfetto.dev or chrome://tracing, and return its path.

        Host times by stage, steps, requests, fall-offs; a device lane where device events measured one.
        """
        device = self.header.device
        facts = TimelineFacts(self.header.model.name, device.device, device.simulated)
        return _write_json(timeline(self.steps, facts, self.header.pieces), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Trace":
        """Read a trace. Steps are decoded on first use.

        Raises: TraceError when the file is missing, truncated, of another version or no trace.
        """
        source = trace_source(path)
        content = read_content(source)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            message = f"{path} is not a trace file; record one with `stepscope trace record --out FILE`"
            raise TraceError(message)
        found = (content.get("version"), content.get("snapshot_version"))
        if found[0] != TRACE_VERSION or found[1] not in SNAPSHOT_VERSIONS:
            message = (
                f"{path} has trace version {shown(found[0])}.{shown(found[1])}, this Stepscope reads "
                f"{TRACE_VERSION}.{SNAPSHOT_VERSIONS[0]} to {TRACE_VERSION}.{SNAPSHOT_VERSION}; record it again"
            )
            raise TraceError(message)
        try:
            marks = tuple(RowMark(**mark) for mark in content.get("marks", ()))
            return cls(_header(content["header"]), StoredSteps(content["steps"], found[1]), marks)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            message = f"{path} is a damaged trace ({type(error).__name__}: {cut(error)}); record it again"
            raise TraceError(message) from error


def _open_packed(path: Path) -> TextIO:
    return cast("TextIO", gzip.open(path, "wt", encoding="utf-8", compresslevel=6))


def _write_json(content: Mapping[str, Any], path: str | os.PathLike[str], *, is_packed: bool = False) -> Path:
    """Write a file, whole or not at all. Raises: TraceError."""
    target = trace_target(path)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with _open_packed(part) if is_packed else part.open("w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False, separators=(",", ":"))
        part.replace(target)
    except OSError as error:
        message = f"cannot write the trace {target}: {error.strerror or error}"
        raise TraceError(message) from error
    finally:
        with contextlib.suppress(OSError):  # the name may be what could not be written
            part.unlink(missing_ok=True)
    return target


def _header(stored: Mapping[str, Any]) -> TraceHeader:
    warmup = stored["warmup"]
    fields: dict[str, Any] = {
        **stored,
        "model": ModelFacts(**stored["model"]),
        "device": DeviceFacts(**stored["device"]),
        "warmup": WarmupFacts(tuple(CaptureFact(**c) for c in warmup["captures"]), warmup["seconds"]),
        "requests": tuple(_request(request) for request in stored["requests"]),
        "buckets": tuple(stored["buckets"]),
        "pieces": {int(token): text for token, text in stored["pieces"].items()},
    }
    header = TraceHeader(**fields)
    require_types(header, "header")
    return header


def _request(stored: Mapping[str, Any]) -> RequestRecord:
    fields: dict[str, Any] = dict(stored)
    for name in ("prompt_token_ids", "draft_tokens"):
        if fields.get(name) is not None:
            fields[name] = tuple(fields[name])
    return RequestRecord(**fields)


def _redacted_request(request: RequestRecord) -> RequestRecord:
    params = {name: value for name, value in request.params.items() if name not in _HIDDEN_PARAMS}
    bare = dataclasses.replace(request, prompt_token_ids=None, prompt_text=None, params=params)
    return dataclasses.replace(bare, draft_tokens=None if request.draft_tokens else (), cache_salt=None)


def _redacted_step(step: StepSnapshot) -> StepSnapshot:
    rows = dataclasses.replace(step.rows, token_ids=np.full_like(step.rows.token_ids, UNKNOWN))
    tokens = tuple((request_id, UNKNOWN) for request_id, _ in step.outcome.tokens)
    buffers = tuple(dataclasses.replace(view, values=None) for view in step.buffers)
    outcome = dataclasses.replace(step.outcome, tokens=tokens, new_text=(), ledger=without_text(step.outcome.ledger))
    reservation = dataclasses.replace(step.reservation, ledger=without_text(step.reservation.ledger))
    schedule = dataclasses.replace(
        step.schedule, spans=_redacted_spans(step.schedule.spans), asked=_redacted_spans(step.schedule.asked)
    )
    return dataclasses.replace(
        step, schedule=schedule, reservation=reservation, rows=rows, buffers=buffers, outcome=outcome
    )


def _redacted_spans(spans: tuple[SpanView, ...]) -> tuple[SpanView, ...]:
    return tuple([dataclasses.replace(span, drafts=(UNKNOWN,) * len(span.drafts)) for span in spans])

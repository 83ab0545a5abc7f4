"""Workload: all that a recorded run was made of, read back from its trace, and run again under another configuration.

The header of a trace has the model and the hash of its weights, the configuration, and every request with its prompt
and parameters. When a request was submitted is read from the steps: the first that ran it or deferred it. One that
stops without having finished while others go on was aborted, and is aborted again after the same work.

A request that samples without a seed draws the recorded noise only if its id is the recorded one, that is, if the
trace begins with the engine's first request; what is drawn changes the work only through stop tokens.

Does not: change a configuration (``changes.py``) or judge a re-run (``search.py``).
"""

import contextlib
import dataclasses
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.device import DeviceSpec, resolve_device
from engine.errors import ConfigError, ModelError, StepscopeError, TraceError, UnknownRequestError
from engine.fields import cut, shown
from engine.llm import LLM
from engine.models.registry import LoadedModel, load_model
from lab.reasons import GRAPH_PATHS
from lab.session import Arrival, Session
from lab.snapshot import StepSnapshot
from lab.trace import RequestRecord, Trace, graph_share

Work = frozenset[tuple[int, int, int]]  # (place in the order of submission, first position, rows)


@dataclasses.dataclass(frozen=True, slots=True)
class Proof:
    """The re-run's step that does the same work on a graph. step: index into ``trace``, which ends with it."""

    path: str
    key: str | None
    step: int
    trace: Trace


@dataclasses.dataclass(frozen=True, slots=True)
class Abort:
    """A request that was aborted: ``num_steps`` steps after the one whose rows of it ended at position ``end``."""

    end: int
    num_steps: int


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """All that a trace's run was made of, and the work of the step in question. aborts: by place."""

    config: EngineConfig
    model: LoadedModel
    arrivals: tuple[Arrival, ...]
    aborts: Mapping[int, Abort]
    work: Work
    max_steps: int

    @classmethod
    def of(cls, trace: Trace, i: int, model: str | LoadedModel | None = None) -> "Workload":
        """Read it from the header and load the model. Raises: TraceError, as ``counterfactual``."""
        header = trace.header
        _require_prompts(trace)
        config = _config(header.config)
        requests = sorted(header.requests, key=lambda request: request.request_id)
        first, asked = trace.steps[0].step, _asked_at(trace, requests)
        arrivals = tuple(
            (asked[r.request_id] - first, list(r.prompt_token_ids or ()), _params(r), r.draft_tokens or ())
            for r in requests
        )
        places = {request.request_id: place for place, request in enumerate(requests)}
        unknown = [span.request_id for span in trace.steps[i].schedule.spans if span.request_id not in places]
        if unknown:
            message = f"this trace cannot be run again: it has no prompt for request {unknown[0]}"
            raise TraceError(message)
        loaded = _load(trace, config, model)
        aborts = {places[request_id]: abort for request_id, abort in _aborts(trace).items() if request_id in places}
        return cls(config, loaded, arrivals, aborts, _work(trace.steps[i], places), 2 * len(trace) + 100)

    def run(self, config: EngineConfig) -> Proof | None:
        """Run the requests under ``config`` until a step does the work; None when none does.

        A fresh engine counts its request ids up from 0, in the order of submission: they are the places.
        """
        places = {place: place for place in range(len(self.arrivals))}
        with LLM(self.model, config) as llm, Session(llm, prompts=self.arrivals, mode="light") as session:
            for at, step in enumerate(self._steps(session)):
                if _work(step, places) == self.work:
                    return Proof(step.graph.path, step.graph.key, at, session.trace)
        return None

    def run_whole(self, config: EngineConfig) -> Trace:
        """Run the requests under ``config`` to their end, or to ``max_steps`` if that comes first."""
        with LLM(self.model, config) as llm, Session(llm, prompts=self.arrivals, mode="light") as session:
            for _ in self._steps(session):
                continue
            return session.trace

    def _steps(self, session: Session) -> Iterator[StepSnapshot]:
        """Yield the session's steps, and abort what was aborted when it has done the same work."""
        reached: dict[int, int] = {}  # place: the step that reached the recorded end
        for _ in range(self.max_steps):
            if session.is_finished:
                return
            step = session.step()  # None: only the output of an abort came
            if step is None:
                continue
            yield step
            for span in step.schedule.spans:
                abort = self.aborts.get(span.request_id)
                if abort is not None and span.start + span.num_rows >= abort.end:
                    reached.setdefault(span.request_id, step.step)
            for place in [p for p, at in reached.items() if step.step >= at + self.aborts[p].num_steps]:
                del reached[place]
                with contextlib.suppress(UnknownRequestError):  # here it has finished by itself
                    session.llm.abort(place)


@dataclasses.dataclass(frozen=True, slots=True)
class Coverage:
    """What a proved change does for several steps, by a whole re-run.

    num_steps: recorded steps that were asked about. num_on_graph: those whose work takes a graph in the re-run.
    num_gone: those whose work no step of the re-run does. graph_share: of the whole re-run.
    """

    num_steps: int
    num_on_graph: int
    num_gone: int
    graph_share: float | None


def cover(trace: Trace, indices: Sequence[int], proof: Proof, *, model: str | LoadedModel | None = None) -> Coverage:
    """Run the whole workload under the configuration of ``proof``, and look the steps up in it. indices: into trace.

    Raises: TraceError, as ``counterfactual``.
    """
    workload = Workload.of(trace, indices[0], model)
    with runnable_here():
        rerun = workload.run_whole(_config(proof.trace.header.config))
    recorded, paths = _works(trace), dict[Work, set[str]]()
    for step, work in zip(rerun.steps, _works(rerun), strict=True):
        paths.setdefault(work, set()).add(step.graph.path)
    return Coverage(
        num_steps=len(indices),
        num_on_graph=sum(bool(paths.get(recorded[at], set()) & GRAPH_PATHS) for at in indices),
        num_gone=sum(recorded[at] not in paths for at in indices),
        graph_share=graph_share(rerun.steps),
    )


@contextlib.contextmanager
def runnable_here() -> Generator[None]:
    """Let what refuses to run the recorded workload as it is say so of the trace. Raises: TraceError."""
    try:
        yield
    except TraceError:
        raise
    except StepscopeError as error:
        message = f"this trace cannot be run again here: {cut(error, 400)}"
        raise TraceError(message) from error


def _work(step: StepSnapshot, places: Mapping[int, int]) -> Work:
    return frozenset((places[span.request_id], span.start, span.num_rows) for span in step.schedule.spans)


def _works(trace: Trace) -> list[Work]:
    requests = sorted(request.request_id for request in trace.header.requests)
    places = {request_id: place for place, request_id in enumerate(requests)}
    return [_work(step, places) for step in trace.steps]


def _load(trace: Trace, config: EngineConfig, model: str | LoadedModel | None) -> LoadedModel:
    """Load the trace's model. Raises: TraceError when it is not here, or has other weights."""
    header = trace.header
    if isinstance(model, LoadedModel):
        loaded = model
    else:
        spec = _recorded_device(config)
        name = header.model.name if model is None else model
        try:
            loaded = load_model(name, spec, seed=config.seed, max_seq_len=config.max_seq_len)
        except (ConfigError, ModelError) as error:
            message = f"this trace cannot be run again here: {error}; counterfactual(trace, i, model=...) names a model"
            raise TraceError(message) from error
    if loaded.weight_hash != header.model.weight_hash:
        message = (
            f"this trace cannot be run again: it was recorded with weights {header.model.weight_hash}, and "
            f"{loaded.name} has {loaded.weight_hash}; name the recorded model with counterfactual(trace, i, model=...)"
        )
        raise TraceError(message)
    return loaded


def _recorded_device(config: EngineConfig) -> DeviceSpec:
    try:
        return resolve_device(config.device, config.dtype)
    except ConfigError as error:
        problem = str(error).partition(";")[0]  # its hint is for somebody who writes a configuration
        message = f"this trace cannot be run again here: it was recorded on {shown(config.device)}, and {problem}"
        raise TraceError(message) from error


def _require_prompts(trace: Trace) -> None:
    header = trace.header
    if header.redacted:
        problem = "it is redacted: its prompts are gone; record it without redact"
    elif not header.requests or any(request.prompt_token_ids is None for request in header.requests):
        problem = "it holds no prompts; record it with attach(llm) or Session"
    elif len({request.request_id for request in header.requests}) < len(header.requests):
        problem = "two of its requests have one id"
    elif not header.config:
        problem = "it holds no engine configuration (it was imported); record it with attach(llm) or Session"
    elif header.num_dropped:
        problem = f"its first {header.num_dropped} steps were dropped; record with a larger limit"
    else:
        return
    message = f"this trace cannot be run again: {problem}"
    raise TraceError(message)


def _config(stored: Mapping[str, Any]) -> EngineConfig:
    """Build the configuration anew from plain values. Raises: TraceError."""
    groups = {"scheduler": SchedulerConfig, "kv_cache": KVCacheConfig, "cuda_graph": CudaGraphConfig}
    try:
        made: dict[str, Any] = {name: group(**stored[name]) for name, group in groups.items()}
        return EngineConfig(**{**stored, **made})
    except (ConfigError, KeyError, TypeError) as error:
        message = f"this trace cannot be run again: its configuration is not one of this Stepscope ({cut(error)})"
        raise TraceError(message) from error


def _params(request: RequestRecord) -> SamplingParams:
    """Build a request's parameters anew from plain values. Raises: TraceError."""
    try:
        return SamplingParams(**request.params)
    except (StepscopeError, TypeError) as error:
        message = (
            f"this trace cannot be run again: the parameters of request {shown(request.request_id)} are not those of "
            f"this Stepscope ({cut(error)})"
        )
        raise TraceError(message) from error


def _aborts(trace: Trace) -> dict[int, Abort]:
    """Return the requests that neither finished nor were there to the end, and where they were stopped."""
    ran: dict[int, tuple[int, int]] = {}  # request: (the last step that ran it, the end of its rows)
    seen: dict[int, int] = {}
    done = set[int]()
    for step in trace.steps:
        ran.update((span.request_id, (step.step, span.start + span.num_rows)) for span in step.schedule.spans)
        seen.update((live.request_id, step.step) for live in (*step.schedule.spans, *step.schedule.deferrals))
        done.update(request_id for request_id, _ in step.outcome.finished)
    last = trace.steps[-1].step
    return {
        request_id: Abort(end, seen[request_id] - at)
        for request_id, (at, end) in ran.items()
        if request_id not in done and seen[request_id] < last
    }


def _asked_at(trace: Trace, requests: Sequence[RequestRecord]) -> dict[int, int]:
    """Return the step before which each request was submitted, as far as the trace shows it.

    The header has the step that first ran a request; it may have waited before that, which its deferrals show. A later
    request was never submitted before an earlier one.
    """
    asked = {request.request_id: request.arrival_step for request in requests}
    for step in trace.steps:
        for deferral in step.schedule.deferrals:
            if deferral.request_id in asked:
                asked[deferral.request_id] = min(asked[deferral.request_id], step.step)
    latest: int | None = None
    for request in reversed(requests):
        here = asked[request.request_id]
        latest = here if latest is None else min(latest, here)
        asked[request.request_id] = latest
    return asked

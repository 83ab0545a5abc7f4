"""Session and attach: an engine with a recorder on it.

``Session`` owns an engine and a workload whose requests join at given steps; it is stepped by hand or run to the end.
``attach`` puts a recorder on an engine that somebody else drives, and takes it off again whatever happens.

Does not: record (``recorder.py``) or draw (``widgets``).
"""

import contextlib
import dataclasses
from collections.abc import Generator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, cast

from engine.config import EngineConfig, SamplingParams
from engine.cuda_graphs.prefill import prefill_key
from engine.errors import ClosedError, ConfigError, RequestError, UnknownRequestError
from engine.fields import integer, shown
from engine.interrupts import uninterrupted
from engine.llm import LLM, Prompt, RequestOutput
from lab.device_clock import CudaClock
from lab.freeze import FixedBuffers, versions
from lab.recorder import MAX_STEPS, Recorder, Seen, Sights
from lab.snapshot import StepSnapshot
from lab.trace import CaptureFact, DeviceFacts, ModelFacts, RequestRecord, Trace, TraceHeader, WarmupFacts

Arrival = tuple[int, Prompt] | tuple[int, Prompt, SamplingParams] | tuple[int, Prompt, SamplingParams, Sequence[int]]
Params = SamplingParams | Sequence[SamplingParams]

_EMPTY: Final = "a session needs at least one prompt, got an empty list"


def make_recorder(llm: LLM, *, mode: str = "light", limit: int = MAX_STEPS) -> Recorder:
    """Return a recorder that knows the engine's buffers and can write its trace's header; it is not attached yet."""
    chains = llm.prefill_graphs
    inputs = {"input_ids": chains.statics.input_ids, "position_ids": chains.statics.position_ids}
    prefill = {f"prefill.{name}": tensor for name, tensor in inputs.items()} if chains.buckets else {}
    fixed = FixedBuffers(llm.input_buffers.tensors(), llm.graph_statics.tensors(), prefill)
    texts: dict[int, str] = {}
    constant = _constant_header(llm)

    def header(seen: Seen) -> TraceHeader:
        for token in seen.token_ids - texts.keys():
            texts[token] = llm.tokenizer.token_text(token)
        requests = tuple(_with_text(request, llm) for request in seen.requests)
        pieces = {token: texts[token] for token in sorted(seen.token_ids)}
        return dataclasses.replace(
            constant, mode=seen.mode, requests=requests, pieces=pieces, num_dropped=seen.num_dropped
        )

    clock = CudaClock() if llm.device_spec.torch_device.type == "cuda" else None
    return Recorder(header, mode=mode, limit=limit, sights=Sights(fixed, llm.kv_cache, clock))


@contextlib.contextmanager
def attach(llm: LLM, mode: str = "light", *, limit: int = MAX_STEPS) -> Generator[Recorder]:
    """Record the steps of ``llm`` inside the block; the recorder is off again after it, also after an exception.

    Attaching twice in the same mode yields the same recorder, and only the outer block takes it off.
    Raises: ConfigError when another observer is attached.
    """
    existing = llm.probe
    if isinstance(existing, Recorder) and existing.mode == mode:
        yield existing
        return
    if existing is not None:
        what = f"a recorder in {existing.mode} mode" if isinstance(existing, Recorder) else repr(existing)
        message = f"an engine has one observer, {what} is attached; leave its block first, or attach in the same mode"
        raise ConfigError(message)
    recorder = make_recorder(llm, mode=mode, limit=limit)
    llm.set_probe(recorder)
    try:
        yield recorder
    finally:
        if llm.probe is recorder:
            with contextlib.suppress(ClosedError):
                llm.set_probe(None)


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    """A request that joins when ``arrival_step`` steps have been run."""

    arrival_step: int
    prompt: Prompt
    params: SamplingParams
    draft_tokens: tuple[int, ...] = ()


class Session:
    """An engine, a workload and a recorder; a context manager.

    model: as for ``LLM``, or an ``LLM`` that stays its caller's. prompts: texts or lists of token ids that join at
    once, or (arrival step, prompt), (arrival step, prompt, params) or (arrival step, prompt, params, guess of what
    follows, in token ids). params: one for all, or one for each prompt.
    """

    def __init__(
        self,
        model: str | LLM,
        *,
        prompts: Sequence[Prompt | Arrival],
        config: EngineConfig | None = None,
        params: Params | None = None,
        mode: str = "full",
        limit: int = MAX_STEPS,
    ) -> None:
        """Load the model, attach the recorder, submit what joins at step 0."""
        self._plan = sorted(plan(prompts, params), key=lambda planned: planned.arrival_step)
        self._owns_llm = not isinstance(model, LLM)
        if isinstance(model, LLM) and config is not None:
            message = "config belongs to a model by name; this LLM has its own, leave config out"
            raise ConfigError(message)
        self.llm = model if isinstance(model, LLM) else LLM(model, config)
        self._first_step = self.llm.num_steps
        self._outputs: dict[int, RequestOutput] = {}
        self._request_ids: list[int] = []
        self._is_closed = False
        self._block = contextlib.ExitStack()
        try:
            self.recorder = self._block.enter_context(attach(self.llm, mode, limit=limit))
            self._submit_due()
        except BaseException:
            self.close()
            raise

    @property
    def trace(self) -> Trace:
        """The run so far."""
        return self.recorder.trace

    @property
    def is_finished(self) -> bool:
        """Whether every request has joined and finished (or somebody else took the last output of a shared engine)."""
        return not self._plan and (self._is_waiting_for_none or not self.llm.has_unfinished)

    @property
    def _is_waiting_for_none(self) -> bool:
        return all(request_id in self._outputs for request_id in self._request_ids)

    @property
    def outputs(self) -> tuple[RequestOutput, ...]:
        """The outputs finished so far, in the order in which their requests joined."""
        return tuple(self._outputs[request_id] for request_id in self._request_ids if request_id in self._outputs)

    def step(self) -> StepSnapshot | None:
        """Run one step and return its snapshot; None when nothing is left, or when the step failed and was undone."""
        if self.is_finished:
            return None
        if self._is_closed:
            message = "this session was closed; its trace stays, a new Session goes on"
            raise ClosedError(message)
        self._submit_due()
        before = self.llm.num_steps
        self.recorder.mark()
        for _ in range(2 if self.llm.config.overlap else 1):  # the first step of a run is only handed over
            for output in self.llm.step():
                self._outputs[output.request_id] = output
            if self.llm.num_steps > before or self.is_finished:
                break
        return self.recorder.last if self.llm.num_steps > before else None

    def run(self, max_steps: int = MAX_STEPS) -> Trace:
        """Step to the end, at most ``max_steps`` more steps, and return the trace."""
        for _ in range(integer("max_steps", max_steps, refusal=RequestError, low=0)):
            if self.is_finished:
                break
            self.step()
        return self.trace

    def add(self, prompt: Prompt, params: SamplingParams | None = None) -> int:
        """Let a further request join before the next step, and return its id. Raises: RequestError, ClosedError."""
        if self._is_closed:
            message = "this session was closed, so no request can join it; a new Session can be opened"
            raise ClosedError(message)
        with uninterrupted():
            request_id = self.llm.submit(prompt, params or SamplingParams())
            self._request_ids.append(request_id)
        return request_id

    def abort(self, request_id: int) -> None:
        """End a request of this session; its output ("abort") comes with the next step. Raises: UnknownRequestError."""
        self.llm.abort(request_id)

    @property
    def running(self) -> tuple[int, ...]:
        """The ids of the requests that have joined and not finished, in that order."""
        return tuple(request_id for request_id in self._request_ids if request_id not in self._outputs)

    def show(self, **options: Any) -> object:
        """Show the stepper on this session: it steps back and forth, and asks for the next real step."""
        from lab.widgets.show import show  # a session without a notebook needs no widget

        return show(self, **options)

    def close(self) -> None:
        """Take the recorder off, end what still runs; close the engine unless it is the caller's. The trace stays.

        A Ctrl-C meanwhile comes out when it is done.
        """
        with uninterrupted():
            self._is_closed = True
            self._block.close()
            if self._owns_llm:
                self.llm.close()
                return
            for request_id in self._request_ids:
                with contextlib.suppress(UnknownRequestError, ClosedError):  # finished, or the engine is closed already
                    self.llm.abort(request_id)

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _submit_due(self) -> None:
        """Submit the requests whose step has come; when nothing else is left to run, the next ones join early."""
        now = self.llm.num_steps - self._first_step
        if self._plan and self._is_waiting_for_none:
            now = max(now, self._plan[0].arrival_step)
        while self._plan and self._plan[0].arrival_step <= now:
            due = self._plan[0]
            with uninterrupted():  # or a request would run that the session does not know
                self._request_ids.append(self.llm.submit(due.prompt, due.params, draft_tokens=due.draft_tokens))
                del self._plan[0]


def playground(model: str = "tiny", *, lang: str = "en", **settings: Any) -> object:
    """Return controls for prompts, budgets, buckets and policy with a Run button: each run is shown and compared.

    model: a name, loaded anew for each run. settings: what the controls start with (``Settings`` of
    ``lab/widgets/play_settings.py``). Raises: ConfigError.
    """
    from lab.widgets.playground import Playground  # as for Session.show

    if not isinstance(cast("Any", model), str):
        message = f"the playground configures a model by name, got {type(model).__name__}; use Session(llm) for an LLM"
        raise ConfigError(message)
    return Playground(partial(Session, model), lang=lang, **settings)


def plan(prompts: Sequence[Prompt | Arrival], params: Params | None) -> list[Planned]:
    """Give every prompt its arrival step and its params. Raises: RequestError when they do not fit together."""
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Sequence):
        hint = f"; write [{shown(prompts)}]" if isinstance(prompts, str) else ""
        message = f"prompts must be a list, got {shown(prompts)}{hint}"
        raise RequestError(message)
    if not prompts:
        raise RequestError(_EMPTY)
    shared = [params or SamplingParams()] * len(prompts) if not isinstance(params, Sequence) else list(params)
    if len(shared) != len(prompts):
        message = f"params must be one SamplingParams or one for each of {len(prompts)} prompts, got {len(shared)}"
        raise RequestError(message)
    return [_planned(prompt, one) for prompt, one in zip(prompts, shared, strict=True)]


def _planned(prompt: Any, params: SamplingParams) -> Planned:
    is_arrival = isinstance(prompt, tuple) and len(prompt) in (2, 3, 4) and not isinstance(prompt[1], int)
    if not is_arrival:
        return Planned(0, prompt, params)
    step, text, *own = prompt
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        message = f"an arrival step must be an integer of at least 0, got {shown(step)}"
        raise RequestError(message)
    return Planned(step, text, own[0] if own else params, tuple(own[1]) if len(own) > 1 else ())


def _with_text(request: RequestRecord, llm: LLM) -> RequestRecord:
    return dataclasses.replace(request, prompt_text=llm.tokenizer.decode(list(request.prompt_token_ids or ())))


def _constant_header(llm: LLM) -> TraceHeader:
    """Copy what stays the same for the engine's life."""
    report, spec = llm.warmup_report, llm.device_spec
    graphs_enabled = llm.config.cuda_graph.enabled
    named = [(str(capture.key), capture) for capture in report.captures]
    named += [(prefill_key(capture.num_tokens), capture) for capture in report.prefill_captures]
    captures = tuple(CaptureFact(key, c.pool_bytes, round(c.warmup_seconds + c.capture_seconds, 6)) for key, c in named)
    return TraceHeader(
        mode="light",
        config=dataclasses.asdict(llm.config),
        model=ModelFacts(llm.loaded.name, llm.loaded.weight_hash),
        device=DeviceFacts(
            device=str(spec.torch_device),
            dtype=str(spec.dtype).removeprefix("torch."),
            attention_backend=llm.config.attention_backend,
            graph_backend=("tape" if report.simulated else "cuda") if graphs_enabled else "none",
            simulated=report.simulated,
        ),
        warmup=WarmupFacts(captures, round(report.seconds, 6)),
        requests=(),
        buckets=tuple(llm.buckets),
        versions=versions(),
        pieces={},
    )

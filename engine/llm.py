"""LLM: text in, text out. The public door of the engine, and the last place that sees text.

It validates every input before anything is enqueued, so that one bad request costs nobody anything. It drives the
executor one step at a time; ``generate`` and ``stream`` are loops over ``step``.

Does not: schedule, batch or sample. One thread: in the middle of a step every other call raises ReentryError.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from engine.config import EngineConfig, SamplingParams
from engine.decisions import Decisions
from engine.device import resolve_device
from engine.errors import ClosedError, ConfigError, RequestError
from engine.executor.samples import DeviceSampleSource
from engine.fields import integer, shown
from engine.footprint import naming_lack_of_memory
from engine.interrupts import listening, uninterrupted
from engine.llm_request import LlmRequest
from engine.model_engine import DecoderEngine, build_decoder_engine
from engine.models.registry import LoadedModel, load_model
from engine.models.tokenizer import Tokenizer
from engine.probe import Probe
from engine.prompts import Prompt, pair
from engine.py_executor import ExecutorParts, FinishedRequest, PyExecutor, make_schedulers
from engine.request_desk import RequestDesk, ValidRequest
from engine.runners.interface import WarmupReport


@dataclasses.dataclass(frozen=True, slots=True)
class RequestOutput:
    """What a request leaves behind.

    text leaves a stop string and an end-of-text token out, token_ids keep them. finish_reason: "length", "stop",
    "abort" or "error" (then ``error`` says why). logprobs: one {token id: log-probability} a generated token, when
    asked for. cached_tokens: prompt tokens whose KV was reused.
    """

    request_id: int
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str
    error: str | None = None
    logprobs: tuple[dict[int, float], ...] | None = None
    cached_tokens: int = 0


_Box = dict[int, RequestOutput]


class LLM:
    """A model that serves requests; a context manager.

    model: "tiny", "smollm2-135m", a .gguf file, a Hugging Face folder, or a LoadedModel. Raises: ModelError,
    ConfigError.
    """

    def __init__(
        self,
        model: str | LoadedModel,
        config: EngineConfig | None = None,
        *,
        decisions: Decisions | None = None,
        stream_lag: int = 0,
    ) -> None:
        """Load, allocate, warm up. decisions and stream_lag (CPU) are for lessons: other rules, late copies."""
        self.config = EngineConfig() if config is None else config
        if not isinstance(self.config, EngineConfig):
            message = f"config must be an EngineConfig, got {shown(config)}"
            raise ConfigError(message)
        if not isinstance(decisions, Decisions | None):
            message = f"decisions must be a Decisions record, got {shown(decisions)}"
            raise ConfigError(message)
        stream_lag = integer("stream_lag", stream_lag, refusal=ConfigError, low=0)
        self.device_spec = resolve_device(self.config.device, self.config.dtype)
        self.loaded: LoadedModel = load_model(
            model, self.device_spec, seed=self.config.seed, max_seq_len=self.config.max_seq_len
        )
        with naming_lack_of_memory(self.device_spec):
            parts = build_decoder_engine(
                self.loaded, self.config, self.device_spec, decisions=decisions or Decisions(), stream_lag=stream_lag
            )
        self.buckets = parts.buckets
        self.input_buffers, self.graphs = parts.input_buffers, parts.graphs  # for an observer
        self.graph_statics, self.prefill_graphs = self.graphs.statics, parts.prefill
        self.kv_cache = parts.resources.kv_cache  # for an observer, too
        self._model_engine, self._resources = parts.model_engine, parts.resources
        with naming_lack_of_memory(self.device_spec):
            self._warmup_report = self._model_engine.warmup(self._resources)
        self._desk = RequestDesk(self.tokenizer, self.config, vocab_size=self.loaded.config.vocab_size)
        self._executor = self._make_executor(parts)
        self._probe: Probe | None = None
        self._next_id = 0
        self._mailbox: list[RequestOutput] = []  # finished, and nobody's generate or stream waits for it
        self._boxes: dict[int, _Box] = {}  # where the output of a request goes, for those that somebody waits for
        self._is_closed = False

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.loaded.tokenizer

    @property
    def warmup_report(self) -> WarmupReport:
        """What warm-up captured, and what it cost."""
        return self._warmup_report

    @property
    def num_steps(self) -> int:
        """Steps committed so far."""
        return self._executor.num_steps

    @property
    def has_unfinished(self) -> bool:
        """Whether ``step`` has something to run or to hand out."""
        return not self._is_closed and (bool(self._mailbox) or self._executor.has_unfinished)

    @property
    def probe(self) -> Probe | None:
        """The attached observer."""
        return self._probe

    def set_probe(self, probe: Probe | None) -> None:
        """Attach an observer of every stage of every step, or detach it with None."""
        self._require_open()
        if probe is not None and not callable(getattr(probe, "emit", None)):
            message = f"a probe needs a method emit(stage, step, value), got {shown(probe)}; None detaches"
            raise ConfigError(message)
        with self._executor.turn.unless_elsewhere():
            self._probe = probe
            self._executor.set_probe(probe)

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        draft_tokens: Sequence[int] = (),
        cache_salt: str | None = None,
    ) -> int:
        """Enqueue a request and return its id.

        draft_tokens: a guess of the whole continuation, verified SchedulerConfig.draft_len tokens a step; the output is
        the same whatever the guess. cache_salt: prompts of other salts share no cached block with this one.
        Raises: RequestError; then, and after a Ctrl-C, nothing was enqueued.
        """
        validated, request_id = self._validate(prompt, params, draft_tokens, cache_salt), self._next_id
        try:
            return self._enqueue(validated)
        except KeyboardInterrupt:
            try:
                self._withdraw(request_id)
            except KeyboardInterrupt:  # a second one, before anything held it back
                self._withdraw(request_id)
            raise

    def step(self) -> list[RequestOutput]:
        """Run one step and return the outputs that finished since the last call (none on most steps).

        Outputs of a running ``generate`` or ``stream`` go to it, never to somebody else's ``step``.
        """
        self._advance()
        finished = self._mailbox
        try:
            self._mailbox = []
            return finished
        except KeyboardInterrupt:
            self._mailbox = finished  # not handed out after all
            raise

    def abort(self, request_id: int) -> None:
        """End a waiting or running request; its output ("abort") comes with the next ``step``.

        Raises: UnknownRequestError for any other id.
        """
        self._require_open()
        self._executor.abort(request_id)

    def generate(
        self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[RequestOutput]:
        """Serve prompts to their end and return their outputs in order; other requests go on meanwhile.

        params: one for all, or one for each prompt. Raises: RequestError before anything is enqueued.
        """
        self._require_open()
        validated = [self._validate(*pair) for pair in pair(prompts, params)]
        box: _Box = {}
        try:
            with listening():
                request_ids = [self._enqueue(prompt, box) for prompt in validated]
                while len(box) < len(request_ids):
                    self._advance()
        finally:
            try:
                self._abandon(box)
            except BaseException:  # a second Ctrl-C, or a probe that raised
                self._abandon(box)
                raise
        return [box[request_id] for request_id in request_ids]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[str]:
        """Yield the text of one request as it becomes final; closing the iterator aborts the request."""
        return self._stream(self._validate(prompt, params))

    def release_graphs(self) -> None:
        """Give the memory of all graphs back; every later step runs eagerly and says why. There is no way back."""
        self._require_open()
        with self._executor.turn.between_steps():
            self._model_engine.release_graphs()

    def close(self) -> None:
        """Release graphs, then buffers; every later call raises ClosedError. Closing twice is fine."""
        if not self._is_closed:
            with self._executor.turn.between_steps():
                self._is_closed = True
                self._executor.set_probe(None)
                self._model_engine.release_graphs()

    def check(self) -> None:
        """Recompute the engine's invariants (blocks, slots, cursors); for tests and debugging."""
        self._executor.check()

    def __enter__(self) -> Self:
        """Return the open engine."""
        self._require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _make_executor(self, parts: DecoderEngine) -> PyExecutor:
        """Put the step loop around the engine's parts."""
        samples = DeviceSampleSource(parts.sampler, parts.stream, self.device_spec, engine_seed=self.config.seed)
        return PyExecutor(
            ExecutorParts(
                model_engine=parts.model_engine,
                resources=parts.resources,
                schedulers=make_schedulers(self.config),
                samples=samples,
                eos_token_ids=self.loaded.tokenizer.eos_token_ids,
                vocab_size=self.loaded.config.vocab_size,
                run_copies=lambda copies: parts.storage.run_copies(copies, parts.stream),
                overlap=self.config.overlap,
            )
        )

    def _stream(self, validated: ValidRequest) -> Iterator[str]:
        box: _Box = {}
        shown = 0
        try:
            request_id = self._enqueue(validated, box)
            while not box:
                self._advance()
                text = box[request_id].text if box else self._executor.text_so_far(request_id)
                if len(text) > shown:
                    yield text[shown:]
                    shown = len(text)
            output = box[request_id]
        finally:
            try:
                self._abandon(box)
            except BaseException:  # as above
                self._abandon(box)
                raise
        if len(output.text) > shown:  # it ended in somebody else's step
            yield output.text[shown:]
        if output.error is not None:
            raise RequestError(output.error)

    def _advance(self) -> None:
        """Run a step and send each finished output to whoever waits for it, else to the mailbox."""
        self._require_open()
        self._executor.step()
        self._collect()

    def _collect(self) -> None:
        with uninterrupted():
            for finished in self._executor.take_finished():
                output = _output(finished)
                box = self._boxes.pop(output.request_id, None)
                if box is None:
                    self._mailbox.append(output)
                else:
                    box[output.request_id] = output

    def _withdraw(self, request_id: int) -> None:
        with uninterrupted():
            self._executor.withdraw(request_id)

    def _abandon(self, box: _Box) -> None:
        """Abort what still runs for a caller that is gone, and drop its outputs; a Ctrl-C comes out behind it."""
        with uninterrupted():
            request_ids = [i for i, other in self._boxes.items() if other is box]
            for request_id in request_ids:
                if not self._is_closed and self._executor.is_live(request_id):
                    self._executor.abort(request_id)
            if request_ids:
                self._collect()  # also of one that ended by itself while somebody else was aborted
            for request_id in request_ids:
                self._boxes.pop(request_id, None)

    def _enqueue(self, validated: ValidRequest, box: _Box | None = None) -> int:
        self._require_open()
        with self._executor.turn.between_steps(), uninterrupted():
            spec = dataclasses.replace(validated.spec, request_id=self._next_id)
            self._next_id += 1
            self._executor.submit(LlmRequest(spec), validated.stop_checker)
            if box is not None:
                self._boxes[spec.request_id] = box
        return spec.request_id

    def _validate(
        self, prompt: Prompt, params: SamplingParams | None, draft_tokens: object = (), cache_salt: object = None
    ) -> ValidRequest:
        self._require_open()
        return self._desk.validate(prompt, params, draft_tokens=draft_tokens, cache_salt=cache_salt)

    def _require_open(self) -> None:
        if self._is_closed:
            message = "this LLM was closed; make a new one"
            raise ClosedError(message)


def _output(finished: FinishedRequest) -> RequestOutput:
    request = finished.request
    assert request.finish_reason is not None
    return RequestOutput(
        request_id=request.request_id,
        prompt_token_ids=tuple(request.spec.prompt_token_ids),
        token_ids=tuple(request.generated),
        text=finished.text,
        finish_reason=request.finish_reason,
        error=request.error,
        cached_tokens=request.cached_tokens or 0,
        logprobs=finished.logprobs if request.spec.params.logprobs is not None else None,
    )

"""LLM: text in, text out. The public door of the engine, and the last place that sees text.

It validates every input before anything is enqueued, so that one bad request costs nobody anything. It drives the
executor one step at a time; ``generate`` and ``stream`` are loops over ``step``.

Does not: schedule, batch or sample. One thread.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from engine.config import EngineConfig, SamplingParams
from engine.decisions import Decisions
from engine.device import resolve_device
from engine.errors import ClosedError, ConfigError, RequestError
from engine.llm_request import LlmRequest, RequestLimits, RequestSpec
from engine.model_engine import build_decoder_engine
from engine.models.registry import LoadedModel, load_model
from engine.probe import Probe
from engine.py_executor import FinishedRequest, PyExecutor, Schedulers
from engine.runners.interface import WarmupReport
from engine.sampling.stopping import StopChecker
from engine.scheduler.capacity import CapacityScheduler
from engine.scheduler.micro_batch import MicroBatchScheduler

Prompt = str | Sequence[int]


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


class LLM:
    """A model that serves requests; a context manager.

    model: "tiny", "smollm2-135m", a .gguf file or a Hugging Face folder. Raises: ModelError, ConfigError.
    """

    def __init__(
        self,
        model: str,
        config: EngineConfig | None = None,
        *,
        decisions: Decisions | None = None,
        stream_lag: int = 0,
    ) -> None:
        """Load, allocate, warm up. decisions and stream_lag (CPU) are for lessons: other rules, late copies."""
        self.config = config or EngineConfig()
        if not isinstance(self.config, EngineConfig):
            message = f"config must be an EngineConfig, got {config!r}"
            raise ConfigError(message)
        self.device_spec = resolve_device(self.config.device, self.config.dtype)
        self.loaded: LoadedModel = load_model(
            model, self.device_spec, seed=self.config.seed, max_seq_len=self.config.max_seq_len
        )
        parts = build_decoder_engine(
            self.loaded, self.config, self.device_spec, decisions=decisions or Decisions(), stream_lag=stream_lag
        )
        self.buckets = parts.buckets
        self.input_buffers, self.graph_statics = parts.input_buffers, parts.graph_statics  # for an observer
        self._model_engine, self._resources = parts.model_engine, parts.resources
        self._warmup_report = self._model_engine.warmup(self._resources)
        scheduler = self.config.scheduler
        self._limits = RequestLimits(
            vocab_size=self.loaded.config.vocab_size,
            max_seq_len=self.config.max_seq_len,
            max_num_tokens=scheduler.max_num_tokens,
            is_chunked=scheduler.chunking is not None,
        )
        self._executor = PyExecutor(
            model_engine=self._model_engine,
            resources=self._resources,
            schedulers=Schedulers(
                CapacityScheduler(scheduler.capacity_policy),
                MicroBatchScheduler(
                    max_batch_size=scheduler.max_batch_size,
                    max_num_tokens=scheduler.max_num_tokens,
                    chunking=scheduler.chunking,
                    chunk_unit=self.config.chunk_unit,
                ),
            ),
            sampler=parts.sampler,
            stream=parts.stream,
            engine_seed=self.config.seed,
        )
        self._probe: Probe | None = None
        self._next_id = 0
        self._mailbox: list[RequestOutput] = []  # finished during somebody else's generate or stream
        self._is_closed = False

    @property
    def tokenizer(self):  # noqa: ANN201 the type is the model's own
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
        return bool(self._mailbox) or self._executor.has_unfinished

    @property
    def probe(self) -> Probe | None:
        """The attached observer."""
        return self._probe

    def set_probe(self, probe: Probe | None) -> None:
        """Attach an observer of every stage of every step, or detach it with None."""
        self._require_open()
        self._probe = probe
        self._executor.set_probe(probe)

    def submit(self, prompt: Prompt, params: SamplingParams | None = None) -> int:
        """Enqueue a request and return its id. Raises: RequestError; then nothing was enqueued."""
        return self._enqueue(self._validate(prompt, params))

    def step(self) -> list[RequestOutput]:
        """Run one step and return the outputs that finished since the last call (none on most steps)."""
        self._require_open()
        waiting, self._mailbox = self._mailbox, []
        try:
            return waiting + [_output(finished) for finished in self._executor.step()]
        except BaseException:
            self._mailbox = waiting + self._mailbox
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
        validated = [self._validate(*pair) for pair in _pair(prompts, params)]
        request_ids = [self._enqueue(prompt) for prompt in validated]
        outputs: dict[int, RequestOutput] = {}
        own = set(request_ids)
        try:
            while len(outputs) < len(own):
                self._advance(own, outputs)
        except BaseException:
            self._abandon(own - outputs.keys())
            raise
        return [outputs[request_id] for request_id in request_ids]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[str]:
        """Yield the text of one request as it becomes final; closing the iterator aborts the request."""
        return self._stream(self._validate(prompt, params))

    def close(self) -> None:
        """Release graphs, then buffers; every later call raises ClosedError. Closing twice is fine."""
        if not self._is_closed:
            self._is_closed = True
            self._executor.set_probe(None)
            self._model_engine.close()

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

    def _stream(self, validated: "_Validated") -> Iterator[str]:
        request_id = self._enqueue(validated)
        outputs: dict[int, RequestOutput] = {}
        shown = 0
        try:
            while not outputs:
                self._advance({request_id}, outputs)
                text = outputs[request_id].text if outputs else validated.stop_checker.text
                if len(text) > shown:
                    yield text[shown:]
                    shown = len(text)
        finally:
            if not outputs:
                self._abandon({request_id})
        if outputs[request_id].error is not None:
            raise RequestError(outputs[request_id].error)

    def _advance(self, own: set[int], outputs: dict[int, RequestOutput]) -> None:
        """Run a step; keep one's own outputs apart from those that the next ``step`` hands out."""
        self._require_open()
        for finished in self._executor.step():
            output = _output(finished)
            if output.request_id in own:
                outputs[output.request_id] = output
            else:
                self._mailbox.append(output)

    def _abandon(self, request_ids: set[int]) -> None:
        """Abort requests whose caller is gone, and drop their outputs."""
        if self._is_closed:
            return
        live = {request_id for request_id in request_ids if self._executor.is_live(request_id)}
        for request_id in live:
            self._executor.abort(request_id)
        for finished in self._executor.take_finished():
            if finished.request.request_id not in request_ids:
                self._mailbox.append(_output(finished))

    def _enqueue(self, validated: "_Validated") -> int:
        self._require_open()
        spec = RequestSpec(
            self._next_id, validated.prompt_token_ids, validated.params, max_new_tokens=validated.max_new_tokens
        )
        self._next_id += 1
        self._executor.submit(LlmRequest(spec), validated.stop_checker)
        return spec.request_id

    def _validate(self, prompt: Prompt, params: SamplingParams | None) -> "_Validated":
        self._require_open()
        params = SamplingParams() if params is None else params
        if not isinstance(params, SamplingParams):
            message = f"params must be a SamplingParams, got {params!r}"
            raise RequestError(message)
        ids = self._token_ids(prompt)
        self._limits.check_params(params)
        max_seq_len = self.config.max_seq_len
        checker = StopChecker(
            params,
            prompt_len=len(ids),
            max_seq_len=max_seq_len,
            eos_token_ids=self.tokenizer.eos_token_ids,
            detokenizer=self.tokenizer.detokenizer(),
        )
        return _Validated(ids, params, checker, min(params.max_tokens, max_seq_len - len(ids)))

    def _token_ids(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return self._limits.checked(self.tokenizer.encode(prompt))
        if isinstance(prompt, Sequence) or hasattr(prompt, "tolist"):
            return self._limits.checked(list(prompt))
        message = f"a prompt must be text or a list of token ids, got {prompt!r}"
        raise RequestError(message)

    def _require_open(self) -> None:
        if self._is_closed:
            message = "this LLM was closed; make a new one"
            raise ClosedError(message)


@dataclasses.dataclass(frozen=True, slots=True)
class _Validated:
    """A request that may be enqueued."""

    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    stop_checker: StopChecker
    max_new_tokens: int


def _pair(
    prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None
) -> list[tuple[Prompt, SamplingParams | None]]:
    """Give every prompt its params; a single text counts as a list of one."""
    if not isinstance(prompts, Sequence):
        message = f"prompts must be text or a list of prompts (each a text or a list of token ids), got {prompts!r}"
        raise RequestError(message)
    listed: list[Prompt] = [prompts] if isinstance(prompts, str) else list(prompts)  # type: ignore[arg-type]
    if params is None or isinstance(params, SamplingParams):
        return [(prompt, params) for prompt in listed]
    if not isinstance(params, Sequence):
        message = f"params must be a SamplingParams or a list of them, got {params!r}"
        raise RequestError(message)
    if len(params) != len(listed):
        message = f"params must be one SamplingParams or as many as there are prompts, {len(listed)}, got {len(params)}"
        raise RequestError(message)
    return list(zip(listed, params, strict=True))


def _output(finished: FinishedRequest) -> RequestOutput:
    request = finished.request
    assert request.finish_reason is not None
    return RequestOutput(
        request_id=request.request_id,
        prompt_token_ids=request.spec.prompt_token_ids,
        token_ids=tuple(request.tokens[request.py_prompt_len :]),
        text=finished.text,
        finish_reason=request.finish_reason,
        error=request.error,
        logprobs=finished.logprobs if request.spec.params.logprobs is not None else None,
    )

"""PyExecutor: the step loop. Schedule, reserve, forward, read the samples, commit; or roll back.

A step commits or leaves no trace. Reservations become final at COMMITTED; requests are edited only there. After an
``Exception`` the step's requests finish with "error" and the loop goes on; after a KeyboardInterrupt they stay
runnable. The previous sample is always handed to the next step on the device.

Does not: decide who runs (``scheduler/``), own blocks or tensors, or know prompts as text.
Source: TensorRT-LLM's PyExecutor, the synchronous loop.
"""

import dataclasses
import threading
from collections.abc import Sequence

import torch

from engine.device import Stream
from engine.errors import ProbeError, ReentryError, UnknownRequestError
from engine.fields import cut, shown
from engine.inputs.records import SampleStateTensors
from engine.interrupts import uninterrupted
from engine.llm_request import LlmRequest, RequestState
from engine.model_engine import ModelEngine
from engine.probe import Probe, ProbeGuard, Stage
from engine.resources import Reservation, ResourceManager
from engine.runners.interface import ForwardOutputs
from engine.sampling.sampler import SamplerState, log_probs
from engine.sampling.seeds import request_seed
from engine.sampling.stopping import StopChecker
from engine.scheduled import RowKind, ScheduledRequests, Span
from engine.scheduler.capacity import CapacityScheduler, started_or_not
from engine.scheduler.micro_batch import MicroBatchScheduler

LogProbs = dict[int, float]


@dataclasses.dataclass(frozen=True, slots=True)
class SampledTokens:
    """The step's samples, read by the host, in the order of the logit rows.

    logprobs holds, for requests that asked, the most likely ids with their log-probabilities.
    """

    token_ids: tuple[tuple[int, int], ...]  # (request id, token id)
    logprobs: tuple[tuple[int, LogProbs], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class StepCommit:
    """What became final. new_text: (request id, text that became showable). freed: ids whose blocks came back."""

    finished: tuple[tuple[int, str], ...]
    continued: tuple[int, ...]
    paused: tuple[int, ...]
    freed: tuple[int, ...]
    new_text: tuple[tuple[int, str], ...]
    num_free_blocks: int


@dataclasses.dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request that will not run again, with what its caller gets."""

    request: LlmRequest
    text: str
    logprobs: tuple[LogProbs, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Schedulers:
    """The two scheduling decisions, in the order in which they are asked."""

    capacity: CapacityScheduler
    micro_batch: MicroBatchScheduler


@dataclasses.dataclass(slots=True)
class LiveRequest:
    """A request of the loop with its end conditions and collected log-probabilities."""

    request: LlmRequest
    stop_checker: StopChecker
    logprobs: list[LogProbs] = dataclasses.field(default_factory=list[LogProbs])


class PyExecutor:
    """The loop over live requests. One thread; ``step`` is the only method that runs the model."""

    def __init__(
        self,
        *,
        model_engine: ModelEngine,
        resources: ResourceManager,
        schedulers: Schedulers,
        sampler: SamplerState,
        stream: Stream,
        engine_seed: int,
    ) -> None:
        """Start empty. sampler is shared with the model engine, which samples into it."""
        self._engine = model_engine
        self._resources = resources
        self._schedulers = schedulers
        self._sampler = sampler
        self._stream = stream
        self._engine_seed = engine_seed
        self._live: dict[int, LiveRequest] = {}  # in arrival order
        self._outbox: list[FinishedRequest] = []
        self._open: tuple[ScheduledRequests, Reservation] | None = None
        self._samples = SampleStateTensors(sampler.new_tokens)
        self._host_tokens = torch.zeros(sampler.num_slots, dtype=torch.int32, pin_memory=sampler.new_tokens.is_cuda)
        self._probe: Probe | None = None
        self._stepping = threading.Lock()
        self.num_steps = 0

    def set_probe(self, probe: Probe | None) -> None:
        """Attach an observer of every stage, or detach it with None."""
        self._probe = None if probe is None else ProbeGuard(probe)
        self._engine.set_probe(self._probe)

    @property
    def has_unfinished(self) -> bool:
        """Whether ``step`` has something to run or to hand out."""
        return bool(self._live or self._outbox)

    def submit(self, request: LlmRequest, stop_checker: StopChecker) -> None:
        """Add a request at the end of the queue; the caller has validated it."""
        assert request.request_id not in self._live
        self._live[request.request_id] = LiveRequest(request, stop_checker)

    def withdraw(self, request_id: int) -> None:
        """Undo ``submit`` for a caller who never got the id; a request that has run is left alone."""
        live = self._live.get(request_id)
        if live is not None and live.request.py_seq_slot is None:
            del self._live[request_id]

    def abort(self, request_id: int) -> None:
        """End a live request now; its output comes with the next ``step``. Raises: UnknownRequestError."""
        self.require_idle()
        self._recover()
        if not self.is_live(request_id):
            known = cut(", ".join(map(str, self._live)) or "none")
            message = f"request {shown(request_id)} is not waiting or running (live requests: {known})"
            raise UnknownRequestError(message)
        with uninterrupted():
            self._finish(self._live[request_id], "abort")

    def is_live(self, request_id: int) -> bool:
        """Whether the request is waiting or running."""
        return isinstance(request_id, int) and not isinstance(request_id, bool) and request_id in self._live

    def step(self) -> None:
        """Run one step if anything is live; ``take_finished`` hands out what it finished.

        Raises: ReentryError from inside a probe, or while another thread is in a step.
        """
        self.require_idle()
        with self._stepping:  # of two threads that come at the same instant, one steps after the other
            self._recover()
            if self._live:
                self._run_step()

    def require_idle(self) -> None:
        """Refuse to touch the loop in the middle of a step."""
        if self._stepping.locked():
            message = (
                "an LLM serves one call at a time and a step is running; call it from one thread, never from a probe"
            )
            raise ReentryError(message)

    def take_finished(self) -> tuple[FinishedRequest, ...]:
        """Hand out the finished requests without running anything."""
        finished = tuple(self._outbox)
        self._outbox.clear()
        return finished

    def check(self) -> None:
        """Recompute the loop's invariants: resources conserved, nothing held by requests that are gone."""
        self._recover()
        self._resources.check()
        for live in self._live.values():
            live.request.check()
        held = {i for i in self._resources.kv_cache.live_request_ids if i < 1 << 62}  # dummies have the ids above
        assert held <= set(self._live), f"blocks held by finished requests {held - set(self._live)}"

    def _run_step(self) -> None:
        step = self.num_steps
        scheduled = self._schedule()
        try:
            if self._probe is not None:
                self._probe.emit(Stage.SCHEDULED, step, scheduled)
            reservation = self._reserve(scheduled)
            if self._probe is not None:
                self._probe.emit(Stage.RESERVED, step, reservation)
            outputs = self._engine.forward(
                scheduled, resource_manager=self._resources, new_tensors_device=self._samples, step=step
            )
            sampled = self._read_samples(scheduled, outputs)
            if self._probe is not None:
                self._probe.emit(Stage.SAMPLED, step, sampled)
            with uninterrupted():
                commit = self._commit(scheduled, sampled)
                if self._probe is not None:
                    self._probe.emit(Stage.COMMITTED, step, commit)
        except ProbeError as failure:
            self._roll_back()
            raise failure.original from None
        except Exception as error:  # noqa: BLE001 the loop must outlive any fault of one step
            self._roll_back()
            self._fail(scheduled, error)
        except BaseException:
            self._roll_back()
            raise

    def _schedule(self) -> ScheduledRequests:
        kv_cache = self._resources.kv_cache
        running, waiting = started_or_not([live.request for live in self._live.values()], kv_cache)
        admitted = self._schedulers.capacity.schedule(
            running, waiting, kv_cache, max_batch_size=self._engine.get_max_num_sequences()
        )
        return self._schedulers.micro_batch.schedule(admitted.fitting, admitted.deferrals, kv_cache.num_free_blocks)

    def _reserve(self, scheduled: ScheduledRequests) -> Reservation:
        """Reserve for every span, give new requests their slot, and set up the slot's sampling row."""
        with uninterrupted():
            reservation = self._resources.prepare(scheduled)
            self._open = (scheduled, reservation)
            for request_id, slot in reservation.slots:
                self._live[request_id].request.py_seq_slot = slot
        for request_id, _slot_id in reservation.slots:
            self._set_slot(self._live[request_id].request)
        return reservation

    def _set_slot(self, request: LlmRequest) -> None:
        params = request.spec.params
        seed = request_seed(params.seed, engine_seed=self._engine_seed, request_id=request.request_id)
        self._sampler.set_slot(_slot(request), params, seed=seed, prompt_token_ids=request.tokens, stream=self._stream)

    def _read_samples(self, scheduled: ScheduledRequests, outputs: ForwardOutputs) -> SampledTokens:
        """Wait for the device and read one token for each logit row."""
        self._stream.copy_(self._host_tokens, self._sampler.new_tokens[0, :, 0])
        self._stream.record().wait()
        tokens = self._host_tokens.tolist()
        spans = [span for span in scheduled.spans if span.num_logit_rows]
        token_ids = tuple([(span.request_id, tokens[_slot(span.request)]) for span in spans])
        return SampledTokens(token_ids, _read_logprobs(spans, token_ids, outputs))

    def _commit(self, scheduled: ScheduledRequests, sampled: SampledTokens) -> StepCommit:
        """Make the step final: the only place where a running request is edited."""
        tokens, logprobs = dict(sampled.token_ids), dict(sampled.logprobs)
        finished: list[tuple[int, str]] = []
        new_text: list[tuple[int, str]] = []
        self._open = None
        for span in scheduled.spans:
            live = self._live[span.request_id]
            if span.kind is RowKind.CONTEXT:
                live.request.context_current_position = span.end
            if not span.num_logit_rows:
                continue
            if span.kind is RowKind.CONTEXT:
                live.request.move_to(RequestState.GENERATION_IN_PROGRESS)
            live.request.generated.append(tokens[span.request_id])
            live.request.py_batch_idx = live.request.py_seq_slot
            if span.request_id in logprobs:
                live.logprobs.append(logprobs[span.request_id])
            verdict = live.stop_checker.push(tokens[span.request_id])
            if verdict.new_text:
                new_text.append((span.request_id, verdict.new_text))
            if verdict.finish_reason is not None:
                finished.append((span.request_id, verdict.finish_reason))
                self._finish(live, verdict.finish_reason)
        self.num_steps += 1
        return StepCommit(
            finished=tuple(finished),
            continued=tuple([span.request_id for span in scheduled.spans if span.request_id in self._live]),
            paused=tuple([request.request_id for request in scheduled.paused_requests]),
            freed=tuple([request_id for request_id, _ in finished]),
            new_text=tuple(new_text),
            num_free_blocks=self._resources.kv_cache.num_free_blocks,
        )

    def _finish(self, live: LiveRequest, reason: str, error: str | None = None) -> None:
        live.request.move_to(RequestState.GENERATION_COMPLETE)
        live.request.finish_reason = reason
        live.request.error = error
        if reason not in ("stop", "length"):
            live.stop_checker.end()
        self._resources.free(live.request.request_id)
        del self._live[live.request.request_id]
        self._outbox.append(FinishedRequest(live.request, live.stop_checker.text, tuple(live.logprobs)))

    def _recover(self) -> None:
        """Undo a step whose own undoing was cut off: a second Ctrl-C can land before anything holds it back."""
        if self._open is not None:
            self._roll_back()

    def _roll_back(self) -> None:
        """Undo an open step. Its samples may lie in the slots already, so its rows take host tokens next time."""
        with uninterrupted():
            if self._open is None:
                return
            scheduled, reservation = self._open
            self._open = None
            self._stream.synchronize()
            self._engine.roll_back()
            self._resources.rollback(reservation)
            for span in scheduled.spans:
                span.request.py_batch_idx = None
            for request_id, _slot_id in reservation.slots:
                self._live[request_id].request.py_seq_slot = None
            for span in scheduled.spans:
                if span.request.py_seq_slot is not None and span.request.spec.params.repetition_penalty != 1.0:
                    self._set_slot(span.request)  # the step may have marked a token that was not committed

    def _fail(self, scheduled: ScheduledRequests, error: Exception) -> None:
        """End the requests of a step that raised; the others go on. Without a batch, the oldest request is at fault."""
        spans = [span.request_id for span in scheduled.spans] or [next(iter(self._live))]
        with uninterrupted():
            for request_id in spans:
                self._finish(self._live[request_id], "error", f"{type(error).__name__}: {error}")


def _slot(request: LlmRequest) -> int:
    assert request.py_seq_slot is not None, f"request {request.request_id} has no slot"
    return request.py_seq_slot


def _read_logprobs(
    spans: Sequence[Span], token_ids: Sequence[tuple[int, int]], outputs: ForwardOutputs
) -> tuple[tuple[int, LogProbs], ...]:
    """Compute log-probabilities of the rows that asked, before the next replay reuses the logits' memory."""
    wanted = [(row, span) for row, span in enumerate(spans) if span.request.spec.params.logprobs is not None]
    if not wanted:
        return ()
    logits = outputs.logits.tensor
    found: list[tuple[int, LogProbs]] = []
    for row, span in wanted:
        chosen = torch.tensor([token_ids[row][1]], dtype=torch.int64, device=logits.device)
        top_n = span.request.spec.params.logprobs or 0
        found.append((span.request_id, log_probs(logits[row : row + 1], chosen, top_n).as_dicts()[0]))
    return tuple(found)

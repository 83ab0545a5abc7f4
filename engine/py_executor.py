"""PyExecutor: the step loop. Schedule, reserve, forward; read the samples, commit; or roll back.

A step is *open* from its reservation to its commit. Without overlap one step is open at a time. With overlap the next
step is handed over before the samples of the last are read: it is laid out from what the host knows to come (one token
more for each request), and the samples themselves go from step to step on the device. A request that turns out to have
ended then has one row in the step behind; its token is dropped.

A step commits or leaves no trace. Reservations become final at COMMITTED. When a launch fails, what it reserved goes
back; after an ``Exception`` its requests finish with "error" and the loop goes on, after a KeyboardInterrupt they stay
runnable. A step that was launched is never undone: an interrupted wait for its samples is taken up again.

Does not: decide who runs (``scheduler/``), own blocks or tensors, or know prompts as text.
Source: TensorRT-LLM's PyExecutor, its synchronous and its overlap loop.
"""

import dataclasses
import functools
from collections.abc import Collection

import numpy as np

from engine.config import EngineConfig
from engine.errors import ProbeError, UnknownRequestError
from engine.executor.commit import OpenStep, advance, sampled_tokens
from engine.executor.decode_batch import DecodeBatch
from engine.executor.lifecycle import Lifecycle, Refit, RunCopies
from engine.executor.live import LiveRequest
from engine.executor.records import FinishedRequest, SampledTokens, StepCommit
from engine.executor.repeat import Repetition
from engine.executor.samples import SampleSource
from engine.executor.turn import Turn
from engine.fields import cut, shown
from engine.interrupts import listening, uninterrupted
from engine.llm_request import LlmRequest
from engine.model_engine import ModelEngine
from engine.probe import Probe, ProbeGuard, Stage
from engine.resources import BlockCopy, ResourceManager
from engine.sampling.stopping import StopChecker
from engine.scheduled import ScheduledRequests
from engine.scheduler.capacity import CapacityScheduler
from engine.scheduler.micro_batch import MicroBatchScheduler
from engine.scheduler.refit import refit

__all__ = [
    "ExecutorParts",
    "FinishedRequest",
    "PyExecutor",
    "SampledTokens",
    "Schedulers",
    "StepCommit",
    "make_schedulers",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Schedulers:
    """The scheduling decisions, in the order in which they are asked. refit: after prompt tokens were found cached."""

    capacity: CapacityScheduler
    micro_batch: MicroBatchScheduler
    refit: Refit


def make_schedulers(config: EngineConfig) -> Schedulers:
    """Make the scheduling decisions from their settings."""
    limits, unit = config.scheduler, config.chunk_unit
    micro_batch = MicroBatchScheduler(
        max_batch_size=limits.max_batch_size,
        max_num_tokens=limits.max_num_tokens,
        chunking=limits.chunking,
        chunk_unit=unit,
        draft_len=limits.draft_len,
    )
    fit = functools.partial(refit, max_num_tokens=limits.max_num_tokens, chunk_unit=unit, chunking=limits.chunking)
    return Schedulers(CapacityScheduler(limits.capacity_policy, draft_len=limits.draft_len), micro_batch, fit)


def _no_copies(_copies: tuple[BlockCopy, ...]) -> None:
    """Move nothing: there are no keys and values, only their ledger."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExecutorParts:
    """What the loop works with.

    eos_token_ids: the model's stop ids. run_copies: moves KV blocks before a forward.
    """

    model_engine: ModelEngine
    resources: ResourceManager
    schedulers: Schedulers
    samples: SampleSource
    eos_token_ids: Collection[int]
    vocab_size: int
    run_copies: RunCopies = _no_copies
    overlap: bool = False


class PyExecutor:
    """The loop over live requests. One thread; ``step`` is the only method that runs the model."""

    def __init__(self, parts: ExecutorParts) -> None:
        """Start empty."""
        self._engine, self._resources = parts.model_engine, parts.resources
        self._schedulers, self._samples = parts.schedulers, parts.samples
        self._max_open = 1 if parts.overlap else 0  # steps that stay open when ``step`` returns
        self._repetition = Repetition(eos_token_ids=parts.eos_token_ids, vocab_size=parts.vocab_size)
        self._life = Lifecycle(
            parts.resources, parts.samples, self._repetition, refit=parts.schedulers.refit, copy=parts.run_copies
        )
        self._queue, self._live, self._open = self._life.queue, self._life.queue.live, self._life.open_steps
        self._unsettled: list[LlmRequest] | None = None  # of a launch that was undone, until its neighbours are read
        self._probe: Probe | None = None
        self.turn = Turn()
        self.num_steps = 0

    def set_probe(self, probe: Probe | None) -> None:
        """Attach an observer of every stage, or detach it with None."""
        self._probe = None if probe is None else ProbeGuard(probe)
        self._engine.set_probe(self._probe)

    @property
    def has_unfinished(self) -> bool:
        """Whether ``step`` has something to run or to hand out."""
        return bool(self._live or self._life.outbox)

    def submit(self, request: LlmRequest, stop_checker: StopChecker) -> None:
        """Add a request at the end of the queue; the caller has validated it."""
        self._queue.add(LiveRequest(request, stop_checker))

    def withdraw(self, request_id: int) -> None:
        """Undo ``submit`` for a caller who never got the id; a request that has run is left alone."""
        live = self._live.get(request_id)
        if live is not None and live.request.py_seq_slot is None:
            self._queue.remove(live.request)

    def abort(self, request_id: int) -> None:
        """End a live request; its output comes with the next ``step``. Raises: UnknownRequestError, or as ``step``.

        With overlap its last samples are read first: if one of them ends it, it ended by itself.
        """
        self.turn.require_idle()
        with self.turn.any_call, self.turn.step:  # a probe sees what is read
            self._recover()
            if not self.is_live(request_id):
                known = f"ids of live requests: {', '.join(map(str, self._live))}" if self._live else "no live requests"
                message = f"request {shown(request_id)} is not waiting or running ({cut(known)})"
                raise UnknownRequestError(message)
            self._drain()
            with uninterrupted():
                if request_id in self._live:
                    self._life.finish(self._live[request_id], "abort")

    def is_live(self, request_id: int) -> bool:
        """Whether the request is waiting or running."""
        return isinstance(request_id, int) and not isinstance(request_id, bool) and request_id in self._live

    def text_so_far(self, request_id: int) -> str:
        """Return the text of a live request that may be shown."""
        with uninterrupted():
            self._live[request_id].catch_up()
        return self._live[request_id].stop_checker.text

    def step(self) -> None:
        """Run one step if anything is live; ``take_finished`` hands out what it finished.

        Raises: ReentryError from inside a probe, or while another thread is in a step.
        """
        self.turn.require_idle()
        with listening(), self.turn.any_call, self.turn.step:  # of two threads at the same instant, one waits
            self._recover()
            self._settle()
            if self._live:
                self._run_step()
            if not self._live:
                self._drain()  # what is left are rows of requests that have ended

    def take_finished(self) -> tuple[FinishedRequest, ...]:
        """Hand out the finished requests without running anything."""
        finished = tuple(self._life.outbox)
        self._life.outbox.clear()
        return finished

    def check(self) -> None:
        """Recompute the loop's invariants: resources conserved, nothing held by requests that are gone.

        Raises: as ``step``; in the middle of one they do not hold.
        """
        with self.turn.between_steps():
            self._recover()
            self._life.check()
            self._schedulers.capacity.check()

    def _run_step(self) -> None:
        """Launch a step if one can run, then read what has been open for long enough."""
        while len(self._open) > self._max_open:  # left by an interrupt
            self._complete()
        batch = self._repetition.next(self._queue, self._resources.kv_cache)
        scheduled = self._schedule() if batch is None else None
        if scheduled is not None and self._open and self._must_read_before(scheduled):
            self._drain()
            scheduled = self._schedule()
        if scheduled is not None and scheduled.paused_requests:
            self._life.pause(scheduled.paused_requests)
        is_launched = self._launch(scheduled, batch)
        if self._open and self._max_open:
            self._life.look_ahead(self._open[-1])
        while len(self._open) > self._max_open or (self._open and not is_launched):
            self._complete()

    def _must_read_before(self, scheduled: ScheduledRequests) -> bool:
        """Whether a step cannot be laid out behind samples that nobody has read.

        A paused request computes its tokens again, so all of them must be there. Verify rows the device derives itself,
        behind others too; a plain row behind drafts may turn out to be one that has drafts left, so it is asked again.
        """
        return bool(scheduled.paused_requests) or self._open[-1].scheduled.draft_len > scheduled.draft_len

    def _schedule(self) -> ScheduledRequests:
        """Ask the two schedulers; what they remember from step to step must not be left half changed."""
        queue, kv_cache = self._queue, self._resources.kv_cache
        with uninterrupted():
            admitted = self._schedulers.capacity.schedule(
                queue.running,
                queue.waiting,
                kv_cache,
                max_batch_size=self._engine.get_max_num_sequences(),
                lacking=self._life.lacking,
                has_guesses=queue.num_guessing > 0,
            )
            return self._schedulers.micro_batch.schedule(
                admitted.fitting,
                admitted.deferrals,
                kv_cache.num_free_blocks,
                paused=admitted.paused,
                reusable=kv_cache.reusable_tokens,
                can_draft=admitted.can_draft and queue.num_guessing > 0,
                lay_out=self._life.lay_out_rows,
            )

    def _launch(self, scheduled: ScheduledRequests | None, batch: DecodeBatch | None) -> bool:
        """Hand a step over to the device; False when there is nothing to run."""
        step = self._lay_out(scheduled, batch)
        if step is None:
            return False
        try:
            if self._probe is not None:
                self._probe.emit(Stage.SCHEDULED, step.number, step.scheduled)
            reservation = self._life.reserve(step)
            if self._probe is not None:
                self._probe.emit(Stage.RESERVED, step.number, reservation)
            outputs = self._engine.forward(
                step.scheduled,
                resource_manager=self._resources,
                new_tensors_device=self._samples.previous,
                step=step.number,
            )
            with uninterrupted():
                step.samples = self._samples.follow(step.scheduled, outputs)
                advance(step)
                self._repetition.remember(step, self._queue)
        except ProbeError as failure:
            self._roll_back()
            raise failure.original from None
        except Exception as error:  # noqa: BLE001 the loop must outlive any fault of one step
            self._roll_back()
            self._life.fail(step, error)
            return False
        except BaseException:
            self._roll_back()
            raise
        return True

    def _lay_out(self, scheduled: ScheduledRequests | None, batch: DecodeBatch | None) -> OpenStep | None:
        """Open a step: the scheduler's, or the next one of a repeating batch. None when nobody can run."""
        number = self._open[-1].number + 1 if self._open else self.num_steps
        with uninterrupted():
            if batch is not None:
                spans = batch.spans_to_grow()
                record = batch.launch(self._resources.kv_cache.num_free_blocks)
                to_reserve = dataclasses.replace(record, generation_requests=spans)
                step = OpenStep(number, record, to_reserve, batch.rows, is_repeated=True)
            else:
                assert scheduled is not None
                if not scheduled.num_requests:
                    self._life.end_a_standstill(scheduled)
                    return None
                step = self._life.open(number, scheduled)
            self._open.append(step)
        return step

    def _complete(self) -> None:
        """Wait for the samples of the oldest open step and make it final."""
        step = self._open[0]
        try:
            tokens = self._read_samples(step)
            if self._probe is not None:
                self._probe.emit(Stage.SAMPLED, step.number, sampled_tokens(step, tokens, self._live))
            with uninterrupted():
                del self._open[0]
                self.num_steps = step.number + 1
                log = self._life.commit(step, tokens, is_watched=self._probe is not None)
                if self._probe is not None:
                    self._probe.emit(Stage.COMMITTED, step.number, self._life.commit_record(step, log))
        except ProbeError as failure:
            raise failure.original from None
        except Exception as error:  # noqa: BLE001 as above; whoever stands in the step behind is ended, too
            with uninterrupted():
                self._open[:] = [other for other in self._open if other is not step]
                self._engine.roll_back()
                self._life.fail(step, error)

    def _read_samples(self, step: OpenStep) -> np.ndarray:
        """Wait for the device. Shapes: [1 + K, A] int32, by slot."""
        assert step.samples is not None
        return step.samples.read()

    def _drain(self) -> None:
        """Make every open step final."""
        while self._open:
            self._complete()

    def _recover(self) -> None:
        """Undo a launch whose own undoing was cut off: a second Ctrl-C can land before anything holds it back."""
        if self._open and not self._open[-1].is_launched:
            self._roll_back()

    def _settle(self) -> None:
        """After an undone launch, read what is open; then the host knows every token that the next rows start from."""
        if self._unsettled is not None:
            self._drain()
            for request in self._unsettled:
                if request.py_seq_slot is not None and not request.is_finished:
                    self._samples.set_slot(request)  # the step may have marked a token that was not committed
            self._unsettled = None

    def _roll_back(self) -> None:
        """Undo the newest step, which was not launched; one that was stays open."""
        with uninterrupted():
            if not self._open or self._open[-1].is_launched:
                return
            step = self._open.pop()
            self._samples.synchronize()
            self._engine.roll_back()
            self._life.take_back(step)
            spans = step.scheduled.spans
            self._unsettled = [span.request for span in spans if span.request.spec.params.repetition_penalty != 1.0]

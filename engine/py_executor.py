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
import threading
from collections.abc import Callable, Collection

import numpy as np

from engine.errors import ProbeError, ReentryError, UnknownRequestError
from engine.executor.commit import CommitLog, OpenStep, advance, sampled_tokens, take_row, take_samples, undo
from engine.executor.decode_batch import DecodeBatch
from engine.executor.live import LiveRequest, LogProbs, RequestQueue
from engine.executor.records import FinishedRequest, SampledTokens, StepCommit
from engine.executor.samples import SampleSource
from engine.fields import cut, shown
from engine.interrupts import uninterrupted
from engine.llm_request import LlmRequest, RequestState
from engine.model_engine import ModelEngine
from engine.probe import Probe, ProbeGuard, Stage
from engine.resources import BlockCopy, Reservation, ResourceManager
from engine.sampling.stopping import StopChecker
from engine.scheduled import ScheduledRequests
from engine.scheduler.capacity import CapacityScheduler
from engine.scheduler.micro_batch import MicroBatchScheduler

__all__ = ["ExecutorParts", "FinishedRequest", "PyExecutor", "SampledTokens", "Schedulers", "StepCommit"]


@dataclasses.dataclass(frozen=True, slots=True)
class Schedulers:
    """The scheduling decisions, in the order in which they are asked. refit: after prompt tokens were found cached."""

    capacity: CapacityScheduler
    micro_batch: MicroBatchScheduler
    refit: Callable[[ScheduledRequests], ScheduledRequests]


@dataclasses.dataclass(frozen=True, slots=True)
class ExecutorParts:
    """What the loop works with.

    eos_token_ids: the model's stop ids. run_copies: moves KV blocks before a forward; None where nothing holds KV.
    """

    model_engine: ModelEngine
    resources: ResourceManager
    schedulers: Schedulers
    samples: SampleSource
    eos_token_ids: Collection[int]
    vocab_size: int
    run_copies: Callable[[tuple[BlockCopy, ...]], None] | None = None
    overlap: bool = False


class PyExecutor:
    """The loop over live requests. One thread; ``step`` is the only method that runs the model."""

    def __init__(self, parts: ExecutorParts) -> None:
        """Start empty."""
        self._engine, self._resources = parts.model_engine, parts.resources
        self._schedulers, self._samples = parts.schedulers, parts.samples
        self._run_copies = parts.run_copies
        self._eos_ids = frozenset(parts.eos_token_ids)
        self._eos_table = np.zeros(parts.vocab_size, dtype=bool)
        self._eos_table[[i for i in self._eos_ids if i < parts.vocab_size]] = True
        self._max_open = 1 if parts.overlap else 0  # steps that stay open when ``step`` returns
        self._queue = RequestQueue()
        self._live = self._queue.live
        self._outbox: list[FinishedRequest] = []
        self._open: list[OpenStep] = []  # oldest first
        self._last: OpenStep | None = None  # launched last, when nothing but it changed the batch since
        self._versions = (-1, -1)  # of the queue's lists when it was scheduled
        self._batch: DecodeBatch | None = None
        self._unsettled: list[LlmRequest] | None = None  # of a launch that was undone, until its neighbours are read
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
        self._queue.add(LiveRequest(request, stop_checker))

    def withdraw(self, request_id: int) -> None:
        """Undo ``submit`` for a caller who never got the id; a request that has run is left alone."""
        live = self._live.get(request_id)
        if live is not None and live.request.py_seq_slot is None:
            self._queue.remove(live.request)

    def abort(self, request_id: int) -> None:
        """End a live request; its output comes with the next ``step``. Raises: UnknownRequestError.

        With overlap its last samples are read first: if one of them ends it, it ended by itself.
        """
        self.require_idle()
        self._recover()
        if not self.is_live(request_id):
            known = cut(", ".join(map(str, self._live)) or "none")
            message = f"request {shown(request_id)} is not waiting or running (live requests: {known})"
            raise UnknownRequestError(message)
        self._drain()
        with uninterrupted():
            if request_id in self._live:
                self._finish(self._live[request_id], "abort")

    def is_live(self, request_id: int) -> bool:
        """Whether the request is waiting or running."""
        return isinstance(request_id, int) and not isinstance(request_id, bool) and request_id in self._live

    def text_so_far(self, request_id: int) -> str:
        """Return the text of a live request that may be shown."""
        live = self._live[request_id]
        live.catch_up()
        return live.stop_checker.text

    def step(self) -> None:
        """Run one step if anything is live; ``take_finished`` hands out what it finished.

        Raises: ReentryError from inside a probe, or while another thread is in a step.
        """
        self.require_idle()
        with self._stepping:  # of two threads that come at the same instant, one steps after the other
            self._recover()
            self._settle()
            if self._live:
                self._run_step()
            if not self._live:
                self._drain()  # what is left are rows of requests that have ended

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
        self._queue.check()
        if self._batch is not None:
            self._batch.check(self._resources.kv_cache)
        held = {i for i in self._resources.kv_cache.live_request_ids if i < 1 << 62}  # dummies have the ids above
        assert held <= set(self._live), f"blocks held by finished requests {held - set(self._live)}"

    def _run_step(self) -> None:
        """Launch a step if one can run, then read what has been open for long enough."""
        while len(self._open) > self._max_open:  # left by an interrupt
            self._complete()
        batch = self._repeating()
        scheduled = self._schedule() if batch is None else None
        if scheduled is not None and self._open and (scheduled.paused_requests or scheduled.draft_len):
            # A paused request computes its tokens again, a verify row is laid out behind them: both need them all.
            self._drain()
            scheduled = self._schedule()
        if scheduled is not None and scheduled.paused_requests:
            self._pause(scheduled.paused_requests)
        is_launched = self._launch(scheduled, batch)
        while len(self._open) > self._max_open or (self._open and not is_launched):
            self._complete()

    def _schedule(self) -> ScheduledRequests:
        """Ask the two schedulers."""
        queue, kv_cache = self._queue, self._resources.kv_cache
        admitted = self._schedulers.capacity.schedule(
            queue.running, queue.waiting_now, kv_cache, max_batch_size=self._engine.get_max_num_sequences()
        )
        return self._schedulers.micro_batch.schedule(
            admitted.fitting,
            admitted.deferrals,
            kv_cache.num_free_blocks,
            paused=admitted.paused,
            can_draft=admitted.can_draft,
        )

    def _repeating(self) -> DecodeBatch | None:
        """Return the batch that may run again without asking the schedulers; None when they must be asked.

        They were asked with the same requests before, and let none of those that wait in. Since then the running ones
        have only grown, so they would say the same.
        """
        last, queue = self._last, self._queue
        if last is None or self._versions != (queue.running_version, queue.waiting_version):
            return None
        if self._batch is None:
            lives = tuple([self._live[request.request_id] for request in last.scheduled.generating])
            self._batch = DecodeBatch(
                last.scheduled, lives, self._resources.kv_cache, eos_table=self._eos_table, eos_ids=self._eos_ids
            )
        batch = self._batch
        if not batch.can_repeat or len(batch.rows_to_grow()) > self._resources.kv_cache.num_free_blocks:
            return None
        return batch

    def _launch(self, scheduled: ScheduledRequests | None, batch: DecodeBatch | None) -> bool:
        """Hand a step over to the device; False when there is nothing to run."""
        step = self._lay_out(scheduled, batch)
        if step is None:
            return False
        try:
            if self._probe is not None:
                self._probe.emit(Stage.SCHEDULED, step.number, step.scheduled)
            self._reserve(step)
            if self._probe is not None:
                self._probe.emit(Stage.RESERVED, step.number, step.reservation)
            outputs = self._engine.forward(
                step.scheduled,
                resource_manager=self._resources,
                new_tensors_device=self._samples.previous,
                step=step.number,
            )
            with uninterrupted():
                step.samples = self._samples.follow(step.scheduled, outputs)
                advance(step)
                self._remember(step)
        except ProbeError as failure:
            self._roll_back()
            raise failure.original from None
        except Exception as error:  # noqa: BLE001 the loop must outlive any fault of one step
            self._roll_back()
            self._fail(step, error)
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
                grown = batch.rows_to_grow()
                spans = batch.next_spans(grown)
                record = batch.launch(grown, self._resources.kv_cache.num_free_blocks)
                step = OpenStep(number, record, dataclasses.replace(record, generation_requests=spans), batch)
            elif scheduled is not None and scheduled.num_requests:
                step = OpenStep(number, scheduled, scheduled)
            else:
                self._end_a_standstill(scheduled)
                return None
            self._open.append(step)
        return step

    def _reserve(self, step: OpenStep) -> None:
        """Reserve for every span that may need it, give new requests their slot, and set up its sampling row."""
        wanted = step.to_reserve
        with uninterrupted():
            if step.batch is None or wanted.generation_requests:
                reservation = step.reservation = self._resources.prepare(wanted)
            else:
                reservation = step.reservation = Reservation(num_free_blocks=self._resources.kv_cache.num_free_blocks)
            for request_id, slot in reservation.slots:
                self._queue.admit(self._live[request_id].request, slot)
        if reservation.block_copies and self._run_copies is not None:
            self._run_copies(reservation.block_copies)
        for request_id, _slot in reservation.slots:
            self._samples.set_slot(self._live[request_id].request)

    def _remember(self, step: OpenStep) -> None:
        """Note what the next step may repeat: a step of generations alone, whose samples will all be on the device."""
        if step.batch is None:
            scheduled = step.scheduled
            is_plain = not scheduled.context_requests and not scheduled.paused_requests and not scheduled.draft_len
            self._batch, self._last = None, step if is_plain else None
            self._versions = (self._queue.running_version, self._queue.waiting_version)

    def _complete(self) -> None:
        """Wait for the samples of the oldest open step and make it final."""
        step = self._open[0]
        try:
            tokens = self._read_samples(step)
            if self._probe is not None:
                self._probe.emit(Stage.SAMPLED, step.number, sampled_tokens(step, tokens, self._live))
            with uninterrupted():
                log = self._commit(step, tokens)
                if self._probe is not None:
                    self._probe.emit(Stage.COMMITTED, step.number, self._commit_record(step, log))
        except ProbeError as failure:
            raise failure.original from None
        except Exception as error:  # noqa: BLE001 as above; whoever stands in the step behind is ended, too
            with uninterrupted():
                self._open = [other for other in self._open if other is not step]
                self._engine.roll_back()
                self._fail(step, error)

    def _read_samples(self, step: OpenStep) -> np.ndarray:
        """Wait for the device. Shapes: [1 + K, A] int32, by slot."""
        assert step.samples is not None
        return step.samples.read()

    def _commit(self, step: OpenStep, tokens: np.ndarray) -> CommitLog:
        """Make the step final: the only place where a running request gets a token."""
        del self._open[0]
        self.num_steps = step.number + 1
        batch = step.batch
        if batch is not None and batch.is_intact and self._probe is None:
            log = CommitLog()
            row_tokens = tokens[0][batch.slots]
            for row in batch.take(row_tokens):
                take_row(batch.lives[row], [int(row_tokens[row])], log, _own_logprobs(step, batch.lives[row]))
        else:
            if batch is not None:
                batch.count_step()
            log = take_samples(step, tokens, self._live)
        for live, reason in log.ended:
            self._finish(live, reason)
        return log

    def _commit_record(self, step: OpenStep, log: CommitLog) -> StepCommit:
        """Write down what became final, for an observer."""
        finished = tuple([(live.request.request_id, reason) for live, reason in log.ended])
        return StepCommit(
            finished=finished,
            continued=tuple([span.request_id for span in step.scheduled.spans if span.request_id in self._live]),
            paused=tuple([request.request_id for request in step.scheduled.paused_requests]),
            freed=tuple([request_id for request_id, _ in finished]),
            new_text=tuple(log.new_text),
            num_free_blocks=self._resources.kv_cache.num_free_blocks,
        )

    def _finish(self, live: LiveRequest, reason: str, error: str | None = None) -> None:
        request = live.request
        request.move_to(RequestState.GENERATION_COMPLETE)
        request.finish_reason, request.error = reason, error
        if reason not in ("stop", "length"):
            live.catch_up()
            live.stop_checker.end()
        self._resources.free(request.request_id)
        self._queue.remove(request)
        self._forget()
        self._outbox.append(FinishedRequest(request, live.stop_checker.text, tuple(live.logprobs)))

    def _forget(self) -> None:
        """Let the repeating batch go: a row of it has ended, or a step was undone."""
        self._last = self._batch = None
        for step in self._open:
            if step.batch is not None:
                step.batch.is_intact = False

    def _pause(self, requests: tuple[LlmRequest, ...]) -> None:
        """Take everything from requests that must wait; they compute their tokens again when they come back."""
        with uninterrupted():
            for request in requests:
                self._resources.free(request.request_id)
                self._queue.withdraw(request)
                request.pause()

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
            granted = undo(step, self._live)
            self._resources.rollback(granted)
            for request_id, _slot in granted.slots:
                self._queue.withdraw(self._live[request_id].request)
            spans = step.scheduled.spans
            self._unsettled = [span.request for span in spans if span.request.spec.params.repetition_penalty != 1.0]
            self._forget()

    def _fail(self, step: OpenStep, error: Exception) -> None:
        """End the requests of a step that raised; the others go on."""
        with uninterrupted():
            for span in step.scheduled.spans:
                if span.request_id in self._live:
                    self._finish(self._live[span.request_id], "error", f"{type(error).__name__}: {error}")

    def _end_a_standstill(self, scheduled: ScheduledRequests | None) -> None:
        """End the oldest request when nothing runs, nothing is on its way and nobody was let in."""
        if not self._open and scheduled is not None and not scheduled.paused_requests:
            lacks = ", ".join(
                [f"{d.reason.value} (needs {d.needed}, has {d.available})" for d in scheduled.deferrals[:1]]
            )
            oldest = next(iter(self._live.values()))
            self._finish(oldest, "error", f"SchedulingError: no request can ever run: {lacks or 'none was scheduled'}")


def _own_logprobs(step: OpenStep, live: LiveRequest) -> list[LogProbs]:
    assert step.samples is not None
    return [values for request_id, values in step.samples.logprobs() if request_id == live.request.request_id]

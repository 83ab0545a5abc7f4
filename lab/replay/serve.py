"""Serve a trace in virtual time: a request arrives when the clock reaches it, and each step moves the clock on.

The executor is the engine's own over a null runner (``null_engine.py``). The clock advances by the stated cost of each
forward; an engine with nothing to do jumps to the next arrival. A request that can never fit is refused with the
numbers and the rest is served. An interrupt ends the replay with what there is.

Does not: read files, or lay anything out (``report.py``). Source: discrete-event replays of serving simulators.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

from engine.config import EngineConfig
from engine.errors import StepscopeError
from engine.llm_request import LlmRequest, RequestSpec
from lab.replay.cost_model import CostModel
from lab.replay.null_engine import NullEngine, build_null_engine, length_params
from lab.replay.outcome import Ending, Refusal, Replay, Totals
from lab.replay.serving_trace import ServingTrace, TracedRequest, prompt_tokens
from lab.replay.step_log import StepLog

_MOST_IDLE_STEPS: Final = 1_000  # steps in a row without a row, a pause or an end: something waits for nothing

Progress = Callable[[int], object]


class StuckError(StepscopeError):
    """The engine has requests and runs none of them; a bug of ours, said with the numbers."""


def refusal_of(request: TracedRequest, config: EngineConfig) -> Refusal | None:
    """Say why a request can never run under a configuration, or None."""
    length, limits, kv = request.prompt_len + request.output_len, config.scheduler, config.kv_cache
    needed = -(-request.num_positions // kv.tokens_per_block)
    if length > config.max_seq_len:
        return Refusal(request.line, "tokens, and max_seq_len is", length, config.max_seq_len)
    if kv.num_blocks is not None and needed > kv.num_blocks:
        return Refusal(request.line, "KV blocks, and the pool has", needed, kv.num_blocks)
    if limits.chunking is None and request.prompt_len > limits.max_num_tokens:
        what = "rows in one step (no chunking), and max_num_tokens is"
        return Refusal(request.line, what, request.prompt_len, limits.max_num_tokens)
    return None


class _Run:
    """One replay under way."""

    def __init__(self, trace: ServingTrace, config: EngineConfig, costs: CostModel) -> None:
        self.engine: NullEngine = build_null_engine(config)
        self.log = StepLog(costs)
        self.engine.observe(self.log)
        self.refusals = [found for request in trace.requests if (found := refusal_of(request, config)) is not None]
        refused = {refusal.line for refusal in self.refusals}
        self._arrivals: Iterator[TracedRequest] = (r for r in trace.requests if r.line not in refused)
        self._next = next(self._arrivals, None)
        self._tokens_per_block = trace.tokens_per_block
        self._live: dict[int, TracedRequest] = {}
        self.totals = Totals()
        self.endings: list[Ending] = []

    @property
    def is_done(self) -> bool:
        return self._next is None and not self._live

    def submit_arrived(self) -> None:
        """Hand over every request whose time has come; an idle engine waits for the next one."""
        log = self.log
        if not self._live and self._next is not None:
            log.now_us = max(log.now_us, self._next.arrival_us)
        while self._next is not None and self._next.arrival_us <= log.now_us:
            request = self._next
            self._next = next(self._arrivals, None)
            self._live[request.index] = request
            log.arrive(request.index)
            self.engine.submit(self._spec(request))
        log.num_live = len(self._live)

    def _spec(self, request: TracedRequest) -> RequestSpec:
        num_full = request.prompt_len // self._tokens_per_block
        return RequestSpec(
            request.index,
            prompt_tokens(request, self._tokens_per_block),
            length_params(request.output_len),
            max_new_tokens=request.output_len,
            block_keys=request.hash_ids[:num_full] if request.hash_ids else None,
        )

    def step(self) -> int:
        """Run one step of the executor, move the clock, and return how many requests finished."""
        log, began = self.log, time.perf_counter_ns()
        self.engine.executor.step()
        finished = self.engine.executor.take_finished()
        log.note_host_ns(time.perf_counter_ns() - began - log.take_own_ns())
        log.now_us += log.take_charge()
        for done in finished:
            self._finish(done.request)
        return len(finished)

    def _finish(self, done: LlmRequest) -> None:
        request, log = self._live.pop(done.request_id), self.log
        lived = log.leave(done.request_id)
        self.totals.generated_tokens += done.num_generated
        if done.finish_reason == "length" and done.num_generated == request.output_len:
            self.totals.finished += 1
            first, last = lived.first_token_us - request.arrival_us, log.now_us - request.arrival_us
            self.endings.append(Ending(done.request_id, lived.first_step, lived.max_wait_steps, first, last))
            return
        if not self.totals.failed:
            how = done.error or f"it ended by {done.finish_reason}"
            self.totals.first_failure = (
                f"line {request.line} after {done.num_generated} of {request.output_len} tokens: {how}"
            )
        self.totals.failed += 1

    def close(self) -> None:
        """Count what unfinished requests waited, and end them."""
        executor = self.engine.executor
        self.log.stop()
        for request_id in list(self._live):
            executor.abort(request_id)
        for done in executor.take_finished():
            self.totals.generated_tokens += done.request.num_generated


def replay(trace: ServingTrace, config: EngineConfig, costs: CostModel, *, progress: Progress | None = None) -> Replay:
    """Serve the whole trace. progress: called with the requests that finished. Raises: StuckError.

    A KeyboardInterrupt ends it early: the result says so and holds every committed step.
    """
    began = time.perf_counter()
    run = _Run(trace, config, costs)
    is_interrupted, num_idle = False, 0
    try:
        while not run.is_done:
            run.submit_arrived()
            num_before = len(run.log)
            num_finished = run.step()
            if progress is not None and num_finished:
                progress(num_finished)
            num_idle = 0 if len(run.log) > num_before or num_finished else num_idle + 1
            if num_idle > _MOST_IDLE_STEPS:
                message = f"{run.log.num_live} requests wait and {num_idle} steps ran none of them"
                raise StuckError(message)
    except KeyboardInterrupt:
        is_interrupted = True
    run.close()
    return Replay(
        trace=trace,
        config=config,
        costs=costs,
        columns=run.log.columns(),
        totals=run.totals,
        refusals=tuple(run.refusals),
        endings=tuple(run.endings),
        buckets=run.engine.buckets,
        max_wait_steps=run.log.max_wait_steps,
        blocks_leaked=run.engine.num_leaked_blocks,
        wall_s=time.perf_counter() - began,
        is_interrupted=is_interrupted,
    )

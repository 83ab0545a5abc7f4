"""A decoder engine that is stepped by hand, with verify rows: what the executor does, in its plainest form.

Overlap is played through too: then a step is laid out while the samples of the one before are only on the device.
"""

import dataclasses

import torch

from engine.config import EngineConfig, SamplingParams
from engine.decisions import Decisions
from engine.device import resolve_device
from engine.inputs.pack import kv_limit
from engine.inputs.records import SampleStateTensors
from engine.llm_request import LlmRequest, RequestSpec, RequestState
from engine.model_engine import build_decoder_engine
from engine.models.registry import load_model
from engine.probe import Stage
from engine.scheduled import BudgetUse, ScheduledRequests, context_span, generation_span, verify_span


@dataclasses.dataclass
class Counts:
    """What the steps of a world were."""

    steps: int = 0
    accepted: int = 0
    derived: int = 0  # steps with rows that the device had to correct
    paths: list[str] = dataclasses.field(default_factory=list)
    reasons: list = dataclasses.field(default_factory=list)


class World:
    """Requests, and an engine for them. overlap: lay out each step before the samples of the last are read."""

    def __init__(self, config: EngineConfig, *, overlap: bool = False, stream_lag: int = 0, decisions=None) -> None:
        spec = resolve_device(config.device, config.dtype)
        loaded = load_model("tiny", spec, seed=config.seed, max_seq_len=config.max_seq_len)
        parts = build_decoder_engine(loaded, config, spec, decisions=decisions or Decisions(), stream_lag=stream_lag)
        self.engine, self.resources, self.sampler, self.stream = (
            parts.model_engine, parts.resources, parts.sampler, parts.stream,
        )  # fmt: skip
        if overlap and not self.sampler.guesses.numel():
            self.sampler.guesses = torch.zeros((self.sampler.num_slots, config.max_seq_len), dtype=torch.int32)
        self.report = self.engine.warmup(self.resources)
        self.engine.set_probe(self)
        self.overlap, self.draft_len = overlap, config.scheduler.draft_len
        self.counts, self.live, self._next_id = Counts(), [], 0
        self._unread = None

    def emit(self, stage: Stage, step: int, value) -> None:
        if stage is Stage.GRAPH_CHOSEN:
            self.counts.reasons.append(value.reason)
        elif stage is Stage.PACKED and getattr(value, "drafts", None) is not None:
            value.check()
            self.counts.derived += any(value.drafts.previous_draft_lens)
        elif stage is Stage.RAN:
            self.counts.paths.append(value.path.value)

    def submit(self, prompt, params: SamplingParams, drafts=()) -> LlmRequest:
        spec = RequestSpec(self._next_id, tuple(prompt), params, draft_tokens=tuple(drafts))
        self._next_id += 1
        request = LlmRequest(spec)
        request.py_seq_slot = self.resources.seq_slots.assign(request.request_id)
        self.sampler.set_slot(
            request.py_seq_slot,
            params,
            seed=params.seed or 0,
            prompt_token_ids=prompt,
            stream=self.stream,
            draft_tokens=spec.draft_tokens,
            prompt_len=len(prompt),
        )
        self.live.append(request)
        return request

    def step(self) -> None:
        """Lay out and run one step, and read the samples: of this step, or with overlap of the one before."""
        scheduled = self._schedule()
        if scheduled.spans:
            ahead = self._unread
            self._unread = self._launch(scheduled)
            if self.overlap:
                self._foresee(scheduled)
                self._read(ahead)
                return
        unread, self._unread = self._unread, None
        self._read(unread)

    def run(self) -> Counts:
        while self.live:
            self.step()
        self.resources.check()
        self.sampler.check()
        return self.counts

    def _schedule(self) -> ScheduledRequests:
        contexts = tuple([context_span(r, r.py_prompt_len) for r in self.live if r.is_context])
        running = [r for r in self.live if not r.is_context and not self._will_end(r)]
        running.sort(key=lambda r: r.py_batch_idx is not None)
        K = self.draft_len if any(self._has_drafts(r) for r in running) else 0
        spans = tuple([verify_span(r, K) if K else generation_span(r) for r in running])
        num_rows = sum(span.num_rows for span in (*contexts, *spans))
        budget = BudgetUse(num_rows, num_rows, len(contexts) + len(spans), 99)
        return ScheduledRequests(contexts, spans, (), (), budget, draft_len=K)

    @staticmethod
    def _will_end(request: LlmRequest) -> bool:
        """A step on the device brings one token at least."""
        return request.num_generated + (request.num_in_flight > 0) >= request.max_new_tokens

    @staticmethod
    def _has_drafts(request: LlmRequest) -> bool:
        known = request.num_generated + request.num_in_flight
        return len(request.spec.draft_tokens) > known and request.max_new_tokens - known > 1

    def _launch(self, scheduled: ScheduledRequests):
        for span in scheduled.spans:
            self.resources.kv_cache.reserve(span.request_id, min(span.end, kv_limit(span)))
        samples = SampleStateTensors(
            self.sampler.new_tokens, self.sampler.num_accepted, self.sampler.guesses, self.sampler.guess_starts
        )
        self.engine.forward(
            scheduled, resource_manager=self.resources, new_tensors_device=samples, step=self.counts.steps
        )
        self.counts.steps += 1
        tokens, accepted = self.sampler.new_tokens.clone(), self.sampler.num_accepted.clone()
        self.stream.copy_(tokens, self.sampler.new_tokens)
        self.stream.copy_(accepted, self.sampler.num_accepted)
        return scheduled, tokens, accepted, self.stream.record()

    @staticmethod
    def _foresee(scheduled: ScheduledRequests) -> None:
        """Move the requests on as far as the host can know: the best case."""
        for span in scheduled.spans:
            request = span.request
            request.py_batch_idx = request.py_seq_slot
            request.num_in_flight += 1 + len(span.draft_tokens)
            if request.is_context:
                request.context_current_position = span.end
                request.move_to(RequestState.GENERATION_IN_PROGRESS)

    def _read(self, unread) -> None:
        if unread is None:
            return
        scheduled, tokens, accepted, event = unread
        event.wait()
        for span in scheduled.spans:
            request = span.request
            if self.overlap:
                request.num_in_flight -= 1 + len(span.draft_tokens)
            if request not in self.live:
                continue  # it had ended before: this row was wasted
            count = int(accepted[request.py_seq_slot]) if span.draft_tokens else 0
            self.counts.accepted += count
            new = tokens[: 1 + count, request.py_seq_slot, 0].tolist()
            request.generated.extend(new[: request.max_new_tokens - request.num_generated])
            if not self.overlap:
                request.context_current_position = request.py_prompt_len
                if request.is_context:
                    request.move_to(RequestState.GENERATION_IN_PROGRESS)
            if not request.num_in_flight:  # the newest token may lie in another row of new_tokens: the host sends it
                request.py_batch_idx = None if span.draft_tokens else request.py_seq_slot
            if request.num_generated == request.max_new_tokens:
                self.resources.free(request.request_id)
                self.live.remove(request)

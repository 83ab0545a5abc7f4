"""Requests in a given state, and a small world that runs them step by step as the executor would, without a model."""

import functools

from engine.config import SamplingParams
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.llm_request import LlmRequest, RequestSpec, RequestState
from engine.reasons import DeferralReason
from engine.resources import ResourceManager
from engine.scheduled import ScheduledRequests
from engine.scheduler.capacity import CapacityScheduler
from engine.scheduler.micro_batch import MicroBatchScheduler
from engine.scheduler.refit import refit

TOKEN = 7  # what every request of these worlds generates


def waiting(
    request_id: int,
    *,
    prompt_len: int = 20,
    max_tokens: int = 10,
    position: int = 0,
    draft_tokens: tuple[int, ...] = (),
) -> LlmRequest:
    """A request whose prompt is computed up to ``position``."""
    prompt = tuple(range(prompt_len))
    params = SamplingParams(max_tokens=max_tokens)
    request = LlmRequest(RequestSpec(request_id, prompt, params, draft_tokens=draft_tokens))
    request.context_current_position = position
    return request


def running(
    request_id: int, *, prompt_len: int = 20, generated: int = 1, on_device: bool = True, **more: object
) -> LlmRequest:
    """A request that has generated; ``on_device``: its newest sample lies on the device."""
    request = waiting(request_id, prompt_len=prompt_len, position=prompt_len, **more)
    request.generated.extend([TOKEN] * generated)
    request.move_to(RequestState.GENERATION_IN_PROGRESS)
    if on_device:
        request.py_batch_idx = request_id
    return request


def reasons(deferrals) -> dict[int, DeferralReason]:
    """The reason of each deferred request."""
    return {deferral.request_id: deferral.reason for deferral in deferrals}


def started_or_not(active, kv: KVCacheManager) -> tuple[tuple[LlmRequest, ...], tuple[LlmRequest, ...]]:
    """Split live requests into those that own blocks and those that wait."""
    running = [request for request in active if kv.num_reserved_blocks(request.request_id)]
    waiting = [request for request in active if not kv.num_reserved_blocks(request.request_id)]
    return tuple(running), tuple(waiting)


class World:
    """Schedulers and managers around a list of live requests."""

    def __init__(
        self,
        *,
        num_blocks: int = 32,
        tokens_per_block: int = 4,
        max_batch_size: int = 4,
        max_num_tokens: int = 16,
        num_slots: int | None = None,
        chunking: str | None = "fcfs",
        policy: str = "guaranteed_no_evict",
        draft_len: int = 0,
        reuse: bool = False,
    ) -> None:
        self.max_batch_size = max_batch_size
        self.kv = KVCacheManager(
            num_blocks=num_blocks, tokens_per_block=tokens_per_block, max_seq_len=1024, enable_block_reuse=reuse
        )
        self.resources = ResourceManager(self.kv, SeqSlotManager(num_slots or max_batch_size))
        self.capacity = CapacityScheduler(policy, draft_len=draft_len)
        self.micro_batch = MicroBatchScheduler(
            max_batch_size=max_batch_size,
            max_num_tokens=max_num_tokens,
            chunking=chunking,
            chunk_unit=tokens_per_block,
            draft_len=draft_len,
        )
        self.refit = functools.partial(
            refit, max_num_tokens=max_num_tokens, chunk_unit=tokens_per_block, chunking=chunking
        )
        self.active: list[LlmRequest] = []
        self.finished: list[int] = []
        self.num_paused = self.num_accepted = self.num_cached = 0

    def schedule(self) -> ScheduledRequests:
        running, waiting = started_or_not(self.active, self.kv)
        decision = self.capacity.schedule(running, waiting, self.kv, max_batch_size=self.max_batch_size)
        return self.micro_batch.schedule(
            decision.fitting,
            decision.deferrals,
            self.kv.num_free_blocks,
            paused=decision.paused,
            can_draft=decision.can_draft,
            reusable=self.kv.reusable_tokens,
        )

    def pause(self, requests) -> None:
        for request in requests:
            self.resources.free(request.request_id)
            request.pause()
            self.num_paused += 1

    def reserve(self, scheduled: ScheduledRequests) -> ScheduledRequests:
        claim = self.resources.claim(scheduled)
        requests = {span.request_id: span.request for span in scheduled.context_requests}
        for request_id, num_tokens in claim.credits:
            requests[request_id].context_current_position = num_tokens
            self.num_cached += num_tokens
        scheduled = self.refit(scheduled)
        self.resources.reserve(scheduled, claim)
        return scheduled

    def commit(self, scheduled: ScheduledRequests) -> None:
        for span in scheduled.spans:
            request = span.request
            if request.is_context:
                request.context_current_position = span.end
            if span.num_logit_rows:
                drafts = (*span.draft_tokens, None)
                accepted = next(i for i, draft in enumerate(drafts) if draft != TOKEN)
                room = request.max_new_tokens - request.num_generated
                request.generated.extend([TOKEN] * min(1 + accepted, room))
                self.num_accepted += accepted
                if accepted < len(span.draft_tokens):
                    self.kv.rewind(request.request_id, request.num_tokens - 1)
                request.py_batch_idx = self.resources.seq_slots.slot_of(request.request_id)
                if request.is_context:
                    request.move_to(RequestState.GENERATION_IN_PROGRESS)
            self.resources.commit(
                request.request_id, min(span.end, request.num_tokens - 1) if span.num_logit_rows else span.end
            )
            if span.num_logit_rows and request.num_generated == request.spec.params.max_tokens:
                self.finish(request)

    def finish(self, request: LlmRequest) -> None:
        request.move_to(RequestState.GENERATION_COMPLETE)
        request.finish_reason = "length"
        self.resources.free(request.request_id)
        self.active.remove(request)
        self.finished.append(request.request_id)

    def step(self) -> ScheduledRequests:
        scheduled = self.schedule()
        self.pause(scheduled.paused_requests)
        scheduled = self.reserve(scheduled)
        self.commit(scheduled)
        self.check()
        return scheduled

    def check(self) -> None:
        self.resources.check()
        self.capacity.check()
        for request in self.active:
            request.check()

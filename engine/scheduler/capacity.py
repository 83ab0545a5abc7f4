"""CapacityScheduler: which requests may hold KV blocks and a slot. First of the two scheduling stages.

``guaranteed_no_evict``: a request is let in only if the pool can carry it, and every request already in, to the
end of its life; so a running request is never thrown out. ``static_batch``: the same, but newcomers wait until
nothing runs. Both stop at the first request that does not fit: nobody overtakes, so nobody starves.

Does not: look at the token budget (``micro_batch.py``), reserve anything, or change a request.
Source: TensorRT-LLM's capacity scheduler; its max-utilization policy (pause and recompute) is not built.
"""

import dataclasses
from collections.abc import Sequence

from engine.config import CapacityPolicyName
from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest, RequestState
from engine.reasons import DeferralReason
from engine.scheduled import Deferral

_Lack = tuple[DeferralReason, int, int]  # the reason, what was needed, what was available


@dataclasses.dataclass(frozen=True, slots=True)
class CapacityDecision:
    """Who may run, who was thrown out, who waits and why.

    Order: fitting holds the requests that already own blocks first, then newcomers, each in arrival order.
    Units of a deferral's numbers: blocks, except requests for REQUEST_BUDGET and WAITS_FOR_BATCH.
    BEHIND_BLOCKED_REQUEST carries the request's own need, which may well be available.
    """

    fitting: tuple[LlmRequest, ...]
    paused: tuple[LlmRequest, ...]
    deferrals: tuple[Deferral, ...]


def blocks_to_completion(request: LlmRequest, kv: KVCacheManager) -> int:
    """Count the blocks a request may still ask for until it ends.

    The last sampled token is never fed back, so its key and value are never written: hence the minus 1.
    """
    positions = min(request.max_total_tokens - 1, kv.max_seq_len)
    return max(0, kv.blocks_for(positions) - kv.num_reserved_blocks(request.request_id))


class CapacityScheduler:
    """The capacity policy, for one KV cache manager. It remembers only the deferrals of the last blocked queue."""

    def __init__(self, policy: CapacityPolicyName = "guaranteed_no_evict") -> None:
        """Choose the policy."""
        self._is_static = policy == "static_batch"
        self._last_key: tuple[_Lack, int, list[LlmRequest]] | None = None
        self._last_deferrals: tuple[Deferral, ...] = ()

    def schedule(
        self,
        active: Sequence[LlmRequest],
        kv: KVCacheManager,
        *,
        max_batch_size: int,
    ) -> CapacityDecision:
        """Decide over ``active``, which is in arrival order. A request that owns blocks also owns a slot."""
        running: list[LlmRequest] = []
        waiting: list[LlmRequest] = []
        for request in active:
            if request.state is RequestState.GENERATION_IN_PROGRESS:
                running.append(request)
            elif request.state is RequestState.CONTEXT_INIT:
                started = kv.num_reserved_blocks(request.request_id) > 0
                (running if started else waiting).append(request)
        if not waiting:
            return CapacityDecision(tuple(running), (), ())
        if self._is_static and running:
            reason, num_running = DeferralReason.WAITS_FOR_BATCH, len(running)
            deferrals = tuple(Deferral(request.request_id, reason, num_running, 0) for request in waiting)
            return CapacityDecision(tuple(running), (), deferrals)
        promised = sum(blocks_to_completion(request, kv) for request in running)
        num_free_blocks = kv.num_free_blocks - promised
        num_free_places = max_batch_size - len(running)
        for index, request in enumerate(waiting):
            needed = blocks_to_completion(request, kv)
            lack = _first_lack(needed, num_free_blocks, num_free_places)
            if lack is not None:
                deferrals = self._blocked(waiting[index:], lack, kv, num_free_blocks)
                return CapacityDecision((*running, *waiting[:index]), (), deferrals)
            num_free_blocks -= needed
            num_free_places -= 1
        return CapacityDecision((*running, *waiting), (), ())

    def _blocked(
        self, queue: list[LlmRequest], lack: _Lack, kv: KVCacheManager, num_free_blocks: int
    ) -> tuple[Deferral, ...]:
        # Between two admissions nothing of this changes, so a long queue is written out once and not every step.
        key = (lack, num_free_blocks, queue)
        if self._last_key != key:
            reason = DeferralReason.BEHIND_BLOCKED_REQUEST
            first = Deferral(queue[0].request_id, *lack)
            behind = [Deferral(r.request_id, reason, blocks_to_completion(r, kv), num_free_blocks) for r in queue[1:]]
            self._last_key, self._last_deferrals = key, (first, *behind)
        return self._last_deferrals


def _first_lack(needed: int, num_free_blocks: int, num_free_places: int) -> _Lack | None:
    if num_free_places < 1:
        return DeferralReason.REQUEST_BUDGET, 1, 0
    if needed > num_free_blocks:
        return DeferralReason.NO_FREE_BLOCKS, needed, num_free_blocks
    return None

"""CapacityScheduler: which requests may hold KV blocks and a slot. First of the two scheduling stages.

``guaranteed_no_evict``: a request is let in only if the pool can carry it, and every request already in, to the
end of its life; so a running request is never thrown out. ``static_batch``: the same, but newcomers wait until
nothing runs. Both stop at the first request that does not fit: nobody overtakes, so nobody starves.

Cost: the running requests, and those that are let in. Who waits behind them is not looked at.

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
from engine.scheduler.block_needs import blocks_to_completion
from engine.scheduler.deferrals import Lack, QueueDeferrals
from engine.scheduler.promises import Promises


@dataclasses.dataclass(frozen=True, slots=True)
class CapacityDecision:
    """Who may run, who was thrown out, who waits and why.

    Order: fitting holds the requests that already own blocks first, then newcomers, each in arrival order.
    Units of a deferral's numbers: blocks, except requests for REQUEST_BUDGET, for WAITS_FOR_BATCH, and for those behind
    a request that lacks a place. BEHIND_BLOCKED_REQUEST carries the request's own need, which may well be available.
    """

    fitting: tuple[LlmRequest, ...]
    paused: tuple[LlmRequest, ...]
    deferrals: Sequence[Deferral]


class CapacityScheduler:
    """The capacity policy. It remembers only what it need not find out again."""

    def __init__(self, policy: CapacityPolicyName = "guaranteed_no_evict") -> None:
        """Choose the policy."""
        self._is_static = policy == "static_batch"
        self._promises = Promises()
        self._last_key: object = None
        self._last_deferrals: Sequence[Deferral] = ()

    def schedule(
        self,
        running: Sequence[LlmRequest],
        waiting: Sequence[LlmRequest],
        kv: KVCacheManager,
        *,
        max_batch_size: int,
    ) -> CapacityDecision:
        """Decide over those that own blocks and a slot, and those that wait; both are in arrival order.

        A request that is known to end (GENERATION_TO_COMPLETE) keeps its place and its blocks and is not run. Handed
        over as a tuple, the waiting are not even copied, and while nothing changes the deferrals are the same object.
        """
        going = runnable(running)
        if not waiting:
            return CapacityDecision(going, (), ())
        if self._is_static and running:
            lack = Lack(DeferralReason.WAITS_FOR_BATCH, len(running), 0)
            return CapacityDecision(going, (), self._queue(waiting, 0, lack, kv))
        num_free_places = max_batch_size - len(running)
        if num_free_places < 1:
            return CapacityDecision(going, (), self._blocked(waiting, 0, _no_place(), kv))
        num_free_blocks = kv.num_free_blocks - self._promises.total(going, kv)
        admitted: list[LlmRequest] = []
        for request in waiting:
            needed = blocks_to_completion(request, kv)
            lack = _first_lack(needed, num_free_blocks, num_free_places - len(admitted))
            if lack is not None:
                deferrals = self._blocked(waiting, len(admitted), lack, kv)
                return CapacityDecision((*going, *admitted), (), deferrals)
            num_free_blocks -= needed
            admitted.append(request)
        return CapacityDecision((*going, *admitted), (), ())

    def check(self) -> None:
        """Recompute what is remembered."""
        self._promises.check()

    def _blocked(self, waiting: Sequence[LlmRequest], start: int, lack: Lack, kv: KVCacheManager) -> Sequence[Deferral]:
        """Defer the first for its lack, and those behind it because of it."""
        assert lack.needed is not None
        first = Deferral(waiting[start].request_id, lack.reason, lack.needed, lack.available)
        lacks_place = lack.reason is DeferralReason.REQUEST_BUDGET
        behind = Lack(DeferralReason.BEHIND_BLOCKED_REQUEST, lack.needed if lacks_place else None, lack.available)
        return self._queue(waiting, start + 1, behind, kv, head=(first,))

    def _queue(
        self,
        waiting: Sequence[LlmRequest],
        start: int,
        lack: Lack,
        kv: KVCacheManager,
        *,
        head: tuple[Deferral, ...] = (),
    ) -> Sequence[Deferral]:
        queue = tuple(waiting)  # a tuple is not copied
        key = (id(queue), start, lack, id(kv), head)
        if self._last_key != key:
            # The queue's id stays its own as long as these deferrals hold it.
            self._last_key, self._last_deferrals = key, QueueDeferrals(queue, start, lack, kv, head=head)
        return self._last_deferrals


def started_or_not(
    active: Sequence[LlmRequest], kv: KVCacheManager
) -> tuple[tuple[LlmRequest, ...], tuple[LlmRequest, ...]]:
    """Split live requests into those that own blocks and those that wait."""
    running = [request for request in active if kv.num_reserved_blocks(request.request_id)]
    waiting = [request for request in active if not kv.num_reserved_blocks(request.request_id)]
    return tuple(running), tuple(waiting)


def runnable(running: Sequence[LlmRequest]) -> tuple[LlmRequest, ...]:
    """Leave out those that will not run again."""
    last = RequestState.GENERATION_IN_PROGRESS
    return tuple([request for request in running if request.state <= last])


def _no_place() -> Lack:
    return Lack(DeferralReason.REQUEST_BUDGET, 1, 0)


def _first_lack(needed: int, num_free_blocks: int, num_free_places: int) -> Lack | None:
    if num_free_places < 1:
        return _no_place()
    if needed > num_free_blocks:
        return Lack(DeferralReason.NO_FREE_BLOCKS, needed, num_free_blocks)
    return None

"""CapacityScheduler: which requests may hold KV blocks and a slot. First of the two scheduling stages.

``guaranteed_no_evict``: a request is let in only if the pool can carry it, and every request already in, to the
end of its life; so a running request is never thrown out. ``static_batch``: the same, but newcomers wait until
nothing runs. ``max_utilization`` (``utilization.py``): whoever fits now is let in, and the youngest are paused when the
pool gets full. All stop at the first request that does not fit: nobody overtakes, so nobody starves.

Cost: the running requests, and those that are let in. Who waits behind them is not looked at.

Does not: look at the token budget (``micro_batch.py``), reserve anything, or change a request.
Source: TensorRT-LLM's capacity scheduler.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from engine.config import CapacityPolicyName
from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest, RequestState
from engine.reasons import DeferralReason
from engine.scheduled import Deferral
from engine.scheduler.block_needs import blocks_for_step, blocks_to_completion
from engine.scheduler.deferrals import Lack, QueueDeferrals
from engine.scheduler.drafts import any_drafts_left, blocks_for_drafts, fits_longest_sequence
from engine.scheduler.promises import Promises
from engine.scheduler.shared_prefix import awaited_prefix
from engine.scheduler.utilization import fit_running, reserve_for

_NO_PLACE: Final = DeferralReason.REQUEST_BUDGET


@dataclasses.dataclass(frozen=True, slots=True)
class CapacityDecision:
    """Who may run, who was thrown out, who waits and why.

    Order: fitting holds the requests that already own blocks first, then newcomers, each in arrival order; paused, the
    oldest first.
    Units of a deferral's numbers: blocks; requests for REQUEST_BUDGET, for WAITS_FOR_BATCH, and for those behind a
    request that lacks a place; tokens for AWAITS_SHARED_PREFIX. BEHIND_BLOCKED_REQUEST carries the request's own need,
    which may well be available.
    can_draft: whether drafts behind every generation would find blocks that nobody counts on.
    """

    fitting: tuple[LlmRequest, ...]
    paused: tuple[LlmRequest, ...]
    deferrals: Sequence[Deferral]
    can_draft: bool = True


class CapacityScheduler:
    """The capacity policy. It remembers only what it need not find out again."""

    def __init__(self, policy: CapacityPolicyName = "guaranteed_no_evict", *, draft_len: int = 0) -> None:
        """Choose the policy. draft_len: K of a step that has drafts."""
        self._policy = policy
        self._draft_len = draft_len
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
        lacking: Callable[[], Sequence[LlmRequest] | None] | None = None,
        has_guesses: bool = True,
    ) -> CapacityDecision:
        """Decide over those that own blocks and a slot, and those that wait; both are in arrival order.

        A request that is known to end (GENERATION_TO_COMPLETE) keeps its place and its blocks and is not run. The
        waiting are not copied, except from a list; while nothing changes, the deferrals are the same object.
        lacking: names the generations among the running that need a block for their next row, where the caller knows.
        has_guesses: False where the caller knows that nobody came with drafts.
        """
        draft_len = self._draft_len if has_guesses else 0
        going, num_places = runnable(running), max_batch_size - len(running)
        if self._policy == "max_utilization":
            may_admit = bool(waiting) and num_places > 0
            kept = fit_running(going, kv, exact=may_admit or _has_drafts(going, draft_len), lacking=lacking)
            if len(kept.fitting) == len(going):
                room = (kept.num_free_blocks, num_places)
                return self._admit(going, waiting, kv, room=room, draft_len=draft_len)
            behind = Lack(DeferralReason.BEHIND_BLOCKED_REQUEST, None, kept.num_free_blocks)
            deferrals = self._queue(waiting, 0, behind, kv, head=kept.held_back)
            can_draft = self._can_draft(kept.fitting, kv, kept.num_free_blocks, draft_len)
            return CapacityDecision(kept.fitting, kept.paused, deferrals, can_draft)
        if not waiting and not _has_drafts(going, draft_len):
            return CapacityDecision(going, (), ())
        num_free_blocks = kv.num_free_blocks - self._promises.total(going, kv)
        if self._policy == "static_batch" and running:
            lack = Lack(DeferralReason.WAITS_FOR_BATCH, len(running), 0)
            deferrals = self._queue(waiting, 0, lack, kv)
            return CapacityDecision(going, (), deferrals, self._can_draft(going, kv, num_free_blocks, draft_len))
        return self._admit(going, waiting, kv, room=(num_free_blocks, num_places), draft_len=draft_len)

    def check(self) -> None:
        """Recompute what is remembered."""
        self._promises.check()

    def _admit(
        self,
        going: tuple[LlmRequest, ...],
        waiting: Sequence[LlmRequest],
        kv: KVCacheManager,
        *,
        room: tuple[int, int],
        draft_len: int,
    ) -> CapacityDecision:
        """Let newcomers in, in order, up to the first that lacks something. room: free blocks, free places."""
        num_free_blocks, num_places = room
        admitted: list[LlmRequest] = []
        deferrals: Sequence[Deferral] = ()
        is_context = RequestState.CONTEXT_INIT
        computing = [request for request in going if request.state is is_context] if waiting and num_places > 0 else ()
        for request in waiting:
            if len(admitted) >= num_places:
                deferrals = self._blocked(waiting, len(admitted), Deferral(request.request_id, _NO_PLACE, 1, 0), kv)
                break
            needed, available = blocks_to_completion(request, kv), num_free_blocks
            if self._policy == "max_utilization":
                reserve = reserve_for(len(going) + len(admitted), kv.tokens_per_block)
                needed, available = blocks_for_step(request, kv), max(0, num_free_blocks - reserve)
            if needed > available:
                needed -= kv.num_shared_blocks(request)  # what others own costs nothing; what is merely cached does
            if needed > available:
                first = Deferral(request.request_id, self._no_blocks, needed, available)
                deferrals = self._blocked(waiting, len(admitted), first, kv)
                break
            awaited = awaited_prefix(request, computing, kv)
            if awaited is not None:
                first = Deferral(request.request_id, DeferralReason.AWAITS_SHARED_PREFIX, *awaited)
                deferrals = self._blocked(waiting, len(admitted), first, kv, available=available)
                break
            num_free_blocks -= needed
            admitted.append(request)
        return CapacityDecision(
            (*going, *admitted), (), deferrals, self._can_draft(going, kv, num_free_blocks, draft_len)
        )

    @property
    def _no_blocks(self) -> DeferralReason:
        by_step = self._policy == "max_utilization"
        return DeferralReason.NO_BLOCKS_FOR_STEP if by_step else DeferralReason.NO_FREE_BLOCKS

    def _can_draft(
        self, going: tuple[LlmRequest, ...], kv: KVCacheManager, num_free_blocks: int, draft_len: int
    ) -> bool:
        if not _has_drafts(going, draft_len):
            return True
        generations = [request for request in going if not request.is_context]
        to_end = self._policy != "max_utilization"
        extra = blocks_for_drafts(generations, draft_len, kv, to_end=to_end)
        return extra <= num_free_blocks and fits_longest_sequence(generations, draft_len, kv)

    def _blocked(
        self,
        waiting: Sequence[LlmRequest],
        start: int,
        first: Deferral,
        kv: KVCacheManager,
        *,
        available: int | None = None,
    ) -> Sequence[Deferral]:
        """Defer those behind the first because of it. available: blocks, where the first lacks something else."""
        needed = first.needed if first.reason is _NO_PLACE else None
        room = first.available if available is None else available
        behind = Lack(DeferralReason.BEHIND_BLOCKED_REQUEST, needed, room)
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
        queue = tuple(waiting) if isinstance(waiting, list) else waiting
        if start >= len(queue):
            return head
        key = (id(queue), start, lack, id(kv), head)
        if self._last_key != key:
            # The queue's id stays its own as long as these deferrals hold it.
            self._last_key, self._last_deferrals = key, QueueDeferrals(queue, start, lack, kv, head=head)
        return self._last_deferrals


def _has_drafts(going: Sequence[LlmRequest], draft_len: int) -> bool:
    return draft_len > 0 and any_drafts_left(going)


def runnable(running: Sequence[LlmRequest]) -> tuple[LlmRequest, ...]:
    """Leave out those that will not run again."""
    # Told apart by identity: comparing numbers takes longer than all else that is done for a request here.
    generation, context = RequestState.GENERATION_IN_PROGRESS, RequestState.CONTEXT_INIT
    return tuple([request for request in running if request.state is generation or request.state is context])

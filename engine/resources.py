"""ResourceManager: ordered managers that prepare a step all or none, and free together.

``prepare`` turns the scheduler's answer into a ``Reservation`` that becomes final at COMMITTED; ``rollback``
undoes it. Managers never edit requests: what they grant is in the record, and the executor applies it.

Does not: schedule, own tensors, or know the model. Source: TensorRT-LLM's ResourceManager.
"""

import dataclasses

from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.scheduled import ScheduledRequests


@dataclasses.dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy the first num_tokens of block source into block target, in every layer, before the forward."""

    source: int
    target: int
    num_tokens: int


@dataclasses.dataclass(frozen=True, slots=True)
class Reservation:
    """What the managers granted for one step.

    credits: (request id, prompt tokens found in the cache) of requests admitted this step.
    slots: (request id, sequence slot) of requests that got a slot this step.
    new_blocks: (request id, block ids added this step). block_copies: to run before the forward.
    num_free_blocks: free blocks after the reservation.
    """

    credits: tuple[tuple[int, int], ...] = ()
    slots: tuple[tuple[int, int], ...] = ()
    new_blocks: tuple[tuple[int, tuple[int, ...]], ...] = ()
    block_copies: tuple[BlockCopy, ...] = ()
    num_free_blocks: int = 0


class ResourceManager:
    """The KV cache manager and the slot manager, in the order in which they are asked."""

    def __init__(self, kv_cache: KVCacheManager, seq_slots: SeqSlotManager) -> None:
        """Hold the managers; both start empty."""
        self.kv_cache = kv_cache
        self.seq_slots = seq_slots

    def prepare(self, scheduled: ScheduledRequests) -> Reservation:
        """Reserve a slot and the blocks that each span needs; on any error undo everything, then re-raise.

        Raises: OutOfBlocksError, NoFreeSlotsError.
        """
        slots: list[tuple[int, int]] = []
        blocks: list[tuple[int, tuple[int, ...]]] = []
        spans = scheduled.spans
        try:
            for span in spans:
                request_id = span.request.request_id
                if not self.seq_slots.has(request_id):
                    slot = self.seq_slots.assign(request_id)
                    slots.append((request_id, slot))
            for span in spans:
                request_id = span.request.request_id
                added = self.kv_cache.reserve(request_id, span.end)
                if added:
                    blocks.append((request_id, added))
        except BaseException:
            self._undo(slots, blocks)
            raise
        return Reservation(slots=tuple(slots), new_blocks=tuple(blocks), num_free_blocks=self.kv_cache.num_free_blocks)

    def rollback(self, reservation: Reservation) -> None:
        """Give back everything a reservation granted: the step will not be committed."""
        self._undo(list(reservation.slots), list(reservation.new_blocks))

    def _undo(self, slots: list[tuple[int, int]], blocks: list[tuple[int, tuple[int, ...]]]) -> None:
        for request_id, added in reversed(blocks):
            self.kv_cache.unreserve(request_id, added)
        for request_id, _slot in reversed(slots):
            self.seq_slots.release(request_id)

    def free(self, request_id: int) -> None:
        """Give back everything that a request holds; a request that holds nothing is fine."""
        self.kv_cache.free(request_id)
        self.seq_slots.release(request_id)

    def check(self) -> None:
        """Recompute every manager's invariant from scratch."""
        self.kv_cache.check()
        self.seq_slots.check()

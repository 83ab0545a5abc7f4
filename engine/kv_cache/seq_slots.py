"""SeqSlotManager: one sequence slot per live request, stable for its life.

The slot is the request's row in every tensor that outlives a step (sampling parameters, newest token), which is
why it must not move while batches change around it. Padding dummies hold slots of their own.

Does not: own those tensors or write ``py_seq_slot`` (the executor does). Source: TensorRT-LLM's SeqSlotManager.
"""

import heapq

from engine.errors import NoFreeSlotsError


class SeqSlotManager:
    """Slots 0 .. num_slots - 1; the lowest free one is given out."""

    def __init__(self, num_slots: int) -> None:
        """Start with every slot free."""
        self.num_slots = num_slots
        self._free = list(range(num_slots))  # a heap
        self._slots: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        """Slots that nobody holds."""
        return len(self._free)

    @property
    def holders(self) -> frozenset[int]:
        """Requests that hold a slot."""
        return frozenset(self._slots)

    def has(self, request_id: int) -> bool:
        """Tell whether the request holds a slot."""
        return request_id in self._slots

    def slot_of(self, request_id: int) -> int:
        """Return the slot that the request holds."""
        return self._slots[request_id]

    def assign(self, request_id: int) -> int:
        """Give the lowest free slot to a request that holds none.

        Raises: NoFreeSlotsError, which names the holders.
        """
        assert request_id not in self._slots, f"request {request_id} holds slot {self._slots[request_id]} already"
        if not self._free:
            message = (
                f"request {request_id} needs a sequence slot and all {self.num_slots} are taken by the requests "
                f"{sorted(self._slots)}; wait for one to finish, or raise SchedulerConfig.max_batch_size"
            )
            raise NoFreeSlotsError(message)
        slot = self._slots[request_id] = heapq.heappop(self._free)
        return slot

    def release(self, request_id: int) -> None:
        """Take the request's slot back; one that holds none is fine."""
        slot = self._slots.pop(request_id, None)
        if slot is not None:
            heapq.heappush(self._free, slot)

    def check(self) -> None:
        """Recompute conservation: every slot is free or held by exactly one request."""
        assert sorted([*self._free, *self._slots.values()]) == list(range(self.num_slots))

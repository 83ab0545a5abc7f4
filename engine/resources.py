"""ResourceManager: ordered managers that prepare a step all or none, and free together.

A step asks twice. ``claim`` gives newcomers a slot and what the cache holds of their prompts; the executor moves their
cursors and fits the batch again; ``reserve`` then gives each span its blocks. The ``Reservation`` becomes final at
COMMITTED; ``rollback`` undoes it. Managers never edit requests: what they grant is in the record.

Does not: schedule, own tensors, run the copies, or know the model. Source: TensorRT-LLM's ResourceManager.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from engine.kv_cache.copies import BlockCopy
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.scheduled import ScheduledRequests, Span

__all__ = ["BlockCopy", "Claim", "Reservation", "ResourceManager"]


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """What newcomers got before the batch is fitted again; the fields are those of ``Reservation``.

    Valid: until it is passed to ``reserve``, whose record contains it, or rolled back.
    """

    credits: tuple[tuple[int, int], ...] = ()
    slots: tuple[tuple[int, int], ...] = ()
    block_copies: tuple[BlockCopy, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Reservation:
    """What the managers granted for one step.

    credits: (request id, prompt tokens found in the cache) of requests admitted this step.
    slots: (request id, sequence slot) of requests that got a slot this step.
    new_blocks: (request id, block ids added this step). block_copies: to run, in this order, before the forward.
    num_free_blocks: blocks that can be had after the reservation, cached ones included.
    """

    credits: tuple[tuple[int, int], ...] = ()
    slots: tuple[tuple[int, int], ...] = ()
    new_blocks: tuple[tuple[int, tuple[int, ...]], ...] = ()
    block_copies: tuple[BlockCopy, ...] = ()
    num_free_blocks: int = 0


_NOTHING = Claim()


class ResourceManager:
    """The KV cache manager and the slot manager, in the order in which they are asked."""

    def __init__(self, kv_cache: KVCacheManager, seq_slots: SeqSlotManager) -> None:
        """Hold the managers; both start empty."""
        self.kv_cache = kv_cache
        self.seq_slots = seq_slots
        self._reserved = np.zeros(seq_slots.num_slots, dtype=np.int64)
        self._reserved_version = -1  # of the tables that it was counted from; none of them yet

    def claim(self, scheduled: ScheduledRequests) -> Claim:
        """Give each context without a slot one, and each that owns nothing the blocks that its prompt matches.

        Costs nothing in a step without contexts: a generation got its slot with its first chunk.
        Raises: NoFreeSlotsError; then everything is as before.
        """
        if not scheduled.context_requests:
            return _NOTHING
        slots: list[tuple[int, int]] = []
        found: list[tuple[int, int]] = []
        copies: list[BlockCopy] = []
        kv_cache, spans = self.kv_cache, scheduled.context_requests
        try:
            self._assign_slots(spans, slots)
            newcomers = [span for span in spans if not kv_cache.num_reserved_blocks(span.request_id)]
            if newcomers:
                new_ids = {span.request_id for span in newcomers}
                lacking = kv_cache.lacking(_lengths(scheduled.spans))
                promised = sum([count for request_id, _, count in lacking if request_id not in new_ids])
                wanted = [(span.request, span.num_rows) for span in newcomers]
                found = kv_cache.claim(wanted, copies, num_promised=promised)
        except BaseException:
            self.rollback(Claim(tuple(found), tuple(slots), tuple(copies)))
            raise
        return Claim(tuple(found), tuple(slots), tuple(copies))

    def reserve(self, scheduled: ScheduledRequests, claim: Claim = _NOTHING) -> Reservation:
        """Give each span the blocks up to its end; the claim's grants become part of the record.

        A span that is known to fit into the blocks it has may be left out. Evicted blocks go to the host if it has
        room. Raises: OutOfBlocksError; then the claim is undone as well.
        """
        added: list[tuple[int, tuple[int, ...]]] = []
        copies = list(claim.block_copies)
        try:
            for request_id, num_tokens, _ in self.kv_cache.lacking(_lengths(scheduled.spans)):
                added.append((request_id, self.kv_cache.reserve(request_id, num_tokens, copies=copies)))
        except BaseException:
            self.rollback(Reservation(claim.credits, claim.slots, tuple(added), tuple(copies)))
            raise
        num_free_blocks = self.kv_cache.num_free_blocks
        return Reservation(claim.credits, claim.slots, tuple(added), tuple(copies), num_free_blocks)

    def rollback(self, granted: Reservation | Claim) -> None:
        """Give back everything that was granted: the step will not be committed.

        Whoever got a credit in this step owned nothing before it. Whether the copies ran is not known here,
        so content that they moved between device and host is forgotten; that costs a later match, never a token.
        """
        if isinstance(granted, Reservation):
            for request_id, added in reversed(granted.new_blocks):
                self.kv_cache.unreserve(request_id, added)
        for request_id, _tokens in granted.credits:
            self.kv_cache.free(request_id)
        for request_id, _slot in granted.slots:
            self.seq_slots.release(request_id)
        self.kv_cache.distrust(granted.block_copies)

    def reserved_tokens(self) -> np.ndarray:
        """Count the tokens that fit into the blocks of the request of each slot; only changed tables are looked at.

        Shapes: [slots] int64. Valid: for slots whose request owns blocks, until the next change.
        """
        kv_cache, slots = self.kv_cache, self.seq_slots
        changed = None if self._reserved_version < 0 else kv_cache.changed_since(self._reserved_version)
        for request_id in slots.holders if changed is None else changed:
            if slots.has(request_id):
                self._reserved[slots.slot_of(request_id)] = kv_cache.num_reserved_tokens(request_id)
        self._reserved_version = kv_cache.table_version
        return self._reserved

    def commit(self, request_id: int, num_tokens: int) -> None:
        """Declare keys and values of a request's first tokens final: its full blocks may be matched from now on."""
        self.kv_cache.commit(request_id, num_tokens)

    def rewind(self, request_id: int, num_tokens: int) -> int:
        """Give back the blocks behind the first tokens; return how many are held: all, if the rest was never final."""
        return self.kv_cache.rewind(request_id, num_tokens)

    def free(self, request_id: int) -> None:
        """Give back everything that a request holds; a request that holds nothing is fine."""
        self.kv_cache.free(request_id)
        self.seq_slots.release(request_id)

    def _assign_slots(self, spans: Iterable[Span], slots: list[tuple[int, int]]) -> None:
        for span in spans:
            if not self.seq_slots.has(span.request_id):
                slot = self.seq_slots.assign(span.request_id)
                self._reserved[slot] = self.kv_cache.num_reserved_tokens(span.request_id)
                slots.append((span.request_id, slot))

    def check(self) -> None:
        """Recompute every manager's invariant from scratch."""
        self.kv_cache.check()
        self.seq_slots.check()
        reserved = self.reserved_tokens()
        for request_id in self.kv_cache.live_request_ids & self.seq_slots.holders:
            counted = int(reserved[self.seq_slots.slot_of(request_id)])
            assert counted == self.kv_cache.num_reserved_tokens(request_id), f"request {request_id} has other blocks"


def _lengths(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Say how long each request's KV will be: (request id, tokens). Of hundreds of spans few have drafts."""
    return [
        (request.spec.request_id, span.kv_end if drafts else start + num_rows)
        for span in spans
        for request, _, start, num_rows, _, _, drafts in (span,)
    ]

"""Promises: the blocks that the running requests may still ask for, as a sum that is kept and not counted again.

A running request keeps its promise until a block is added to or taken from its table, and the manager says whose table
changed. So a step costs as many look-ups as blocks were handed out, and requests came.

Does not: decide who is let in (``capacity.py``). Source: own.
"""

from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest, RequestState
from engine.scheduler.block_needs import blocks_to_completion


class Promises:
    """The sum of ``blocks_to_completion`` over the running requests of one manager."""

    def __init__(self) -> None:
        """Start with nothing promised."""
        self._running: tuple[LlmRequest, ...] = ()
        self._set: frozenset[LlmRequest] = frozenset()
        self._kv: KVCacheManager | None = None
        self._version = 0
        self._each: dict[int, int] = {}
        self._requests: dict[int, LlmRequest] = {}
        self._drafting: set[int] = set()  # those whose promise may change with each of their tokens
        self._total = 0

    def total(self, running: tuple[LlmRequest, ...], kv: KVCacheManager) -> int:
        """Return the sum for these requests as the manager now stands."""
        changed = kv.changed_since(self._version) if kv is self._kv else None
        come = () if running == self._running else self._exchange(running)
        if changed is None or self._drafting:
            looked_at = self._requests.keys()
        else:
            looked_at = (changed & self._each.keys()).union(come)
        for request_id in looked_at:
            promise = blocks_to_completion(self._requests[request_id], kv)
            self._total += promise - self._each[request_id]
            self._each[request_id] = promise
        self._kv, self._version = kv, kv.table_version
        return self._total

    def _exchange(self, running: tuple[LlmRequest, ...]) -> list[int]:
        """Drop the promises of those that have gone, and return who has come; the others keep theirs."""
        now = frozenset(running)
        gone, come = self._set - now, now - self._set
        for request in gone:
            del self._requests[request.request_id]
            self._drafting.discard(request.request_id)
            self._total -= self._each.pop(request.request_id)
        for request in come:
            self._requests[request.request_id] = request
            self._each[request.request_id] = 0
            if request.spec.draft_tokens:
                self._drafting.add(request.request_id)
        self._running, self._set = running, now
        return [request.request_id for request in come]

    def check(self) -> None:
        """Count again, when no table has changed since.

        With drafts the sum is made anew for every step anyway, and one that has all its tokens is left out of the next.
        """
        is_ending = any(request.state > RequestState.GENERATION_IN_PROGRESS for request in self._running)
        is_current = self._kv is not None and self._kv.table_version == self._version
        drafting = {request.request_id for request in self._running if request.spec.draft_tokens}
        assert self._drafting == drafting
        assert self._requests.keys() == self._each.keys()
        assert set(self._requests.values()) == set(self._running)
        if self._kv is not None and is_current and not self._drafting and not is_ending:
            promised = [blocks_to_completion(request, self._kv) for request in self._running]
            assert self._total == sum(promised), f"{self._total} blocks are promised, not {sum(promised)}"

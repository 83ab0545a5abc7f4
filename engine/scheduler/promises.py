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
        self._kv: KVCacheManager | None = None
        self._version = 0
        self._each: dict[int, int] = {}
        self._requests: dict[int, LlmRequest] = {}
        self._total = 0

    def total(self, running: tuple[LlmRequest, ...], kv: KVCacheManager) -> int:
        """Return the sum for these requests as the manager now stands."""
        changed = kv.changed_since(self._version) if kv is self._kv else None
        if changed is None or any(request.spec.draft_tokens for request in running):
            self._requests = {request.request_id: request for request in running}
            self._each = {key: blocks_to_completion(request, kv) for key, request in self._requests.items()}
            self._total = sum(self._each.values())
        else:
            if running != self._running:
                changed |= self._exchange({request.request_id: request for request in running})
            for request_id in changed & self._each.keys():
                promise = blocks_to_completion(self._requests[request_id], kv)
                self._total += promise - self._each[request_id]
                self._each[request_id] = promise
        self._running, self._kv = running, kv
        self._version = kv.table_version
        return self._total

    def _exchange(self, requests: dict[int, LlmRequest]) -> set[int]:
        """Drop the promises of those that have gone, and return who has come; the others keep theirs."""
        for request_id in self._each.keys() - requests.keys():
            self._total -= self._each.pop(request_id)
        come = {key for key, request in requests.items() if self._requests.get(key) is not request}
        self._each.update(dict.fromkeys(come - self._each.keys(), 0))
        self._requests = requests
        return come

    def check(self) -> None:
        """Count again, when no table has changed since.

        With drafts the sum is made anew for every step anyway, and one that has all its tokens is left out of the next.
        """
        has_drafts = any(request.spec.draft_tokens for request in self._running)
        is_ending = any(request.state > RequestState.GENERATION_IN_PROGRESS for request in self._running)
        is_current = self._kv is not None and self._kv.table_version == self._version
        if self._kv is not None and is_current and not has_drafts and not is_ending:
            promised = [blocks_to_completion(request, self._kv) for request in self._running]
            assert self._total == sum(promised), f"{self._total} blocks are promised, not {sum(promised)}"

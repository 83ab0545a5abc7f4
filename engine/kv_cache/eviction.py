"""EvictionQueue: which leaf of the reuse tree goes first: the lowest priority, then the one unused for longest.

A heap whose entries may be outdated: a node is pushed each time it becomes a leaf that may go, and whether it still
is one is asked when it comes out. So taking a node into use costs the queue nothing.

Does not: remove nodes, or know tiers: which nodes may go is a question that its owner answers. Torch-free.
Source: the prioritised LRU over leaves of TensorRT-LLM's block manager.
"""

import heapq
import itertools
from collections.abc import Callable

from engine.kv_cache.reuse_tree import Node

Rank = tuple[int, int]  # priority, when it was last used; the lowest goes first


def rank(node: Node) -> Rank:
    """Return what the queue compares."""
    return node.priority, node.used


class EvictionQueue:
    """Candidates of one tier. Cost: O(log n) a push, amortised; outdated entries are at most as many as live ones."""

    def __init__(self, may_go: Callable[[Node], bool]) -> None:
        """Ask ``may_go`` whether a node that comes out is a leaf nobody uses, at this moment."""
        self._may_go = may_go
        self._heap: list[tuple[Rank, int, Node]] = []
        self._serial = itertools.count()  # of equal ranks the one that became a leaf first
        self._limit = 64

    def push(self, node: Node) -> None:
        """Note a node that may go from now on."""
        heapq.heappush(self._heap, (rank(node), next(self._serial), node))
        if len(self._heap) > self._limit:
            newest = {id(entry[2]): entry for entry in sorted(self._heap) if self._is_current(entry)}
            self._heap = sorted(newest.values())
            self._limit = 2 * len(self._heap) + 64

    def peek(self) -> Node | None:
        """Return the node that goes first, without taking it; None when no node may go."""
        while self._heap:
            entry = self._heap[0]
            if self._is_current(entry):
                return entry[2]
            heapq.heappop(self._heap)
        return None

    def pop(self) -> Node | None:
        """Take the node that goes first; None when no node may go."""
        node = self.peek()
        if node is not None:
            heapq.heappop(self._heap)
        return node

    def _is_current(self, entry: tuple[Rank, int, Node]) -> bool:
        node = entry[2]
        return entry[0] == rank(node) and self._may_go(node)

    def check(self, candidates: set[Node]) -> None:
        """Compare with every node that may go, collected from scratch."""
        queued = {entry[2] for entry in self._heap if self._is_current(entry)}
        assert queued == candidates, "the eviction queue misses a leaf, or holds one that may not go"

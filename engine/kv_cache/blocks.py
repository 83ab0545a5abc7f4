"""BlockPool: which KV blocks are free, handed out in ascending runs that leave room to grow.

A sequence's blocks may lie anywhere (that is what a block table is for), but attention over neighbouring blocks
reads one long stretch of memory, so the pool tries to keep them neighbours: a growing sequence gets the block
after its last one when that is free, and a new sequence starts in the middle of the largest free run, so that
the sequence below it can grow too. The choice depends on the set of free blocks only, never on history.

Does not: know requests, tokens or tensors. A block has one owner; sharing belongs to the reuse tree.
Source: the paged cache of vLLM and TensorRT-LLM; free runs with both ends indexed are Knuth's boundary tags.
"""

import heapq
from collections.abc import Iterator, Sequence

from engine.errors import OutOfBlocksError


class BlockPool:
    """The free blocks among ids 0 .. num_blocks - 1.

    Cost: O(n) for n blocks, and O(log runs) for each separate run they come from or go to, amortised.
    """

    def __init__(self, num_blocks: int) -> None:
        """Start with every block free."""
        self.num_blocks = num_blocks
        self._num_free = 0
        self._is_free = bytearray(num_blocks)
        self._run_end: dict[int, int] = {}  # first block of a free run -> block after its last
        self._run_start: dict[int, int] = {}  # the reverse
        self._by_length: list[tuple[int, int]] = []  # heap of (-length, first block); entries may be outdated
        if num_blocks:
            self._give_back(0, num_blocks)

    @property
    def num_free(self) -> int:
        """Blocks that nobody owns."""
        return self._num_free

    def allocate(self, count: int, *, after: int | None = None) -> tuple[int, ...]:
        """Take ``count`` blocks, following block ``after`` if that run is free.

        Order: ascending, except that blocks following ``after`` come first.
        Raises: OutOfBlocksError, and then nothing was taken.
        """
        if count > self._num_free:
            message = (
                f"{count} KV blocks are needed and {self._num_free} of {self.num_blocks} are free; "
                f"wait for a request to finish, or raise KVCacheConfig.num_blocks"
            )
            raise OutOfBlocksError(message)
        taken: list[int] = []
        if after is not None and (end := self._run_end.get(after + 1)) is not None:
            end = min(end, after + 1 + count)
            self._take(after + 1, after + 1, end)
            if end == after + 1 + count:
                return tuple(range(after + 1, end))
            taken.extend(range(after + 1, end))
        taken.extend(self._allocate_apart(count - len(taken)))
        return tuple(taken)

    def free(self, block_ids: Sequence[int]) -> None:
        """Give blocks back, in any order. A block that is free already is a bug of ours."""
        for start, end in _runs(block_ids):
            assert 0 <= start < end <= self.num_blocks, f"blocks {start}..{end - 1} are not of this pool"
            assert 1 not in self._is_free[start:end], f"one of the blocks {start}..{end - 1} is free already"
            self._give_back(start, end)

    def _allocate_apart(self, count: int) -> list[int]:
        # From the largest run; only when even that is too short from several, so that the pieces are few.
        taken: list[int] = []
        while len(taken) < count:
            run, run_end = self._largest_run()
            num = min(run_end - run, count - len(taken))
            start = run if run == 0 else run + (run_end - run - num) // 2
            self._take(run, start, start + num)
            taken.extend(range(start, start + num))
        return sorted(taken)

    def _largest_run(self) -> tuple[int, int]:
        # The lowest of the longest free runs. An outdated heap entry no longer matches a run.
        while True:
            negative_length, start = self._by_length[0]
            if self._run_end.get(start) == start - negative_length:
                return start, start - negative_length
            heapq.heappop(self._by_length)

    def _take(self, run: int, start: int, end: int) -> None:
        # Cut [start, end) out of the free run that begins at block ``run``.
        run_end = self._run_end.pop(run)
        del self._run_start[run_end]
        if run < start:
            self._add_run(run, start)
        if end < run_end:
            self._add_run(end, run_end)
        self._is_free[start:end] = bytes(end - start)
        self._num_free -= end - start

    def _give_back(self, start: int, end: int) -> None:
        # Make [start, end) free and melt it into the free runs that touch it.
        self._is_free[start:end] = b"\x01" * (end - start)
        self._num_free += end - start
        if (below := self._run_start.pop(start, None)) is not None:
            start = below
        if (above := self._run_end.pop(end, None)) is not None:
            end = above
        self._add_run(start, end)

    def _add_run(self, start: int, end: int) -> None:
        self._run_end[start], self._run_start[end] = end, start
        heapq.heappush(self._by_length, (start - end, start))
        if len(self._by_length) > 2 * len(self._run_end) + 64:
            self._by_length = [(first - last, first) for first, last in self._run_end.items()]
            heapq.heapify(self._by_length)

    def free_ids(self) -> frozenset[int]:
        """Return the ids of the free blocks; O(num_blocks), for checks and pictures."""
        return frozenset(block for block, is_free in enumerate(self._is_free) if is_free)

    def check(self) -> None:
        """Recompute the free runs from the flags."""
        free_ids = sorted(self.free_ids())
        assert len(free_ids) == self._num_free
        assert dict(_runs(free_ids)) == self._run_end
        assert {end: start for start, end in self._run_end.items()} == self._run_start
        assert {(start - end, start) for start, end in self._run_end.items()} <= set(self._by_length)


def _runs(block_ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    # Cut the ids, in their order, into stretches [start, end) of consecutive ids.
    if not block_ids:
        return
    start = previous = block_ids[0]
    for block in block_ids[1:]:
        if block != previous + 1:
            yield start, previous + 1
            start = block
        previous = block
    yield start, previous + 1

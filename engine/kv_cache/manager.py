"""KVCacheManager: which blocks each live request owns, and how many tokens fit in them.

Reserving is by total length, so asking twice for the same length does nothing the second time, and a decode step
inside an owned block costs one dictionary look-up. ``unreserve`` undoes one reservation exactly: that is how a
step rolls back.

Does not: hold keys and values (``storage.py``), edit requests, schedule, or share blocks between requests.
Source: the life of a sequence in TensorRT-LLM's KVCacheManager; here a length is given, not "one token more".
"""

import collections
from typing import Final

from engine.errors import OutOfBlocksError
from engine.kv_cache.blocks import BlockPool

_REMEMBERED_CHANGES: Final = 4096


class KVCacheManager:
    """Block lists of the live requests, over one pool. Units: tokens are KV positions."""

    def __init__(self, *, num_blocks: int, tokens_per_block: int, max_seq_len: int) -> None:
        """Start with every block free."""
        self.num_blocks = num_blocks
        self.tokens_per_block = tokens_per_block
        self.max_seq_len = max_seq_len
        self.max_blocks_per_seq = self.blocks_for(max_seq_len)
        self._pool = BlockPool(num_blocks)
        self._blocks: dict[int, list[int]] = {}  # holds no empty list
        self._tables: dict[int, tuple[int, ...]] = {}  # tuples of the lists above, made on demand
        self.table_version = 0  # goes up by one with each change of a table
        self._changes: collections.deque[int] = collections.deque(maxlen=_REMEMBERED_CHANGES)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no request owns."""
        return self._pool.num_free

    @property
    def live_request_ids(self) -> frozenset[int]:
        """Requests that own at least one block."""
        return frozenset(self._blocks)

    def blocks_for(self, num_tokens: int) -> int:
        """Count the blocks that hold ``num_tokens`` tokens."""
        return -(-num_tokens // self.tokens_per_block)

    def num_reserved_blocks(self, request_id: int) -> int:
        """Count the blocks that a request owns; 0 for a request that owns none."""
        blocks = self._blocks.get(request_id)
        return 0 if blocks is None else len(blocks)

    def block_table(self, request_id: int) -> tuple[int, ...]:
        """Return the request's blocks in the order of its tokens; the same tuple until they change."""
        table = self._tables.get(request_id)
        if table is None:
            table = self._tables[request_id] = tuple(self._blocks[request_id]) if request_id in self._blocks else ()
        return table

    def changed_since(self, version: int) -> frozenset[int] | None:
        """Name the requests whose table changed after that ``table_version``; None when it is too long ago to know.

        Whoever holds tables of many requests need not look at each of them every step.
        """
        missed = self.table_version - version
        if missed > len(self._changes):
            return None
        return frozenset([self._changes[-1 - back] for back in range(missed)])

    def reserve(self, request_id: int, num_tokens: int, extra: int = 0) -> tuple[int, ...]:
        """Own enough blocks for ``num_tokens + extra`` tokens; return the blocks added, () when none were needed.

        Raises: OutOfBlocksError when the pool or the request's table is too small; then nothing changed.
        """
        blocks = self._blocks.get(request_id)
        owned = 0 if blocks is None else len(blocks)
        if num_tokens + extra <= owned * self.tokens_per_block:
            return ()
        needed = self.blocks_for(num_tokens + extra)
        if needed > self.max_blocks_per_seq:
            message = (
                f"request {request_id} needs {needed} KV blocks for {num_tokens + extra} tokens, and one sequence "
                f"holds at most {self.max_blocks_per_seq} (max_seq_len={self.max_seq_len}); raise "
                f"EngineConfig.max_seq_len"
            )
            raise OutOfBlocksError(message)
        if needed - owned > self._pool.num_free:
            message = (
                f"request {request_id} needs {needed - owned} more KV blocks to hold {num_tokens + extra} tokens, and "
                f"{self._pool.num_free} of {self.num_blocks} are free; wait for a request to finish, or raise "
                f"KVCacheConfig.num_blocks"
            )
            raise OutOfBlocksError(message)
        added = self._pool.allocate(needed - owned, after=blocks[-1] if blocks else None)
        if blocks is None:
            self._blocks[request_id] = list(added)
        else:
            blocks.extend(added)
        self._note_change(request_id)
        return added

    def unreserve(self, request_id: int, added: tuple[int, ...]) -> None:
        """Undo the newest ``reserve`` of a request, given what it returned."""
        if added:
            owned = self._blocks.get(request_id, [])
            assert tuple(owned[-len(added) :]) == added, f"request {request_id} did not reserve {added} last"
            self._truncate(request_id, len(owned) - len(added))

    def rewind(self, request_id: int, num_tokens: int) -> tuple[int, ...]:
        """Keep the blocks that the first ``num_tokens`` tokens need; return the blocks given back."""
        return self._truncate(request_id, self.blocks_for(num_tokens))

    def free(self, request_id: int) -> None:
        """Give back all blocks of a request; one that owns none is fine."""
        self._truncate(request_id, 0)

    def _truncate(self, request_id: int, num_blocks: int) -> tuple[int, ...]:
        blocks = self._blocks.get(request_id)
        if blocks is None:
            self._tables.pop(request_id, None)
        if blocks is None or len(blocks) <= num_blocks:
            return ()
        self._note_change(request_id)
        dropped = tuple(blocks[num_blocks:])
        del blocks[num_blocks:]
        if not blocks:
            del self._blocks[request_id]
        self._pool.free(dropped)
        return dropped

    def _note_change(self, request_id: int) -> None:
        self._tables.pop(request_id, None)
        self._changes.append(request_id)
        self.table_version += 1

    def check(self) -> None:
        """Recompute conservation: every block is free or owned by exactly one request."""
        self._pool.check()
        owned = [block for blocks in self._blocks.values() for block in blocks]
        assert len(set(owned)) == len(owned), "a block has two owners"
        assert self._pool.free_ids() == frozenset(range(self.num_blocks)) - frozenset(owned)
        assert all(0 < len(blocks) <= self.max_blocks_per_seq for blocks in self._blocks.values())
        for request_id, table in self._tables.items():
            assert table == tuple(self._blocks.get(request_id, ())), f"request {request_id} has a stale block table"

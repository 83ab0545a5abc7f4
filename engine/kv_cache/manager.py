"""KVCacheManager: which blocks each live request owns, how many tokens fit in them, and what of them others may use.

Reserving is by total length, so asking twice for the same length does nothing the second time, and a decode step
inside an owned block costs one dictionary look-up. ``unreserve`` undoes one reservation exactly: that is how a
step rolls back.

Reuse: ``commit`` enters a request's full, final blocks into the tree, where they stay when it ends; ``claim`` gives a
request that owns nothing the blocks of its prompt that are there. A block with a place in the tree, or in several
tables, is never written again.

Does not: hold keys and values (``storage.py``), run copies, edit requests, or schedule.
Source: the life of a sequence in TensorRT-LLM's KVCacheManager; here a length is given, not "one token more".
"""

import collections
from collections.abc import Sequence
from typing import Final

from engine.errors import OutOfBlocksError
from engine.kv_cache.copies import BlockCopy, CopyKind
from engine.kv_cache.ledger import BlockLedger, Copies
from engine.kv_cache.newcomer import Newcomer, take_prefixes
from engine.kv_cache.prefix import PrefixFinder, namespace_of
from engine.kv_cache.reuse_tree import DEFAULT_PRIORITY
from engine.llm_request import LlmRequest

_REMEMBERED_CHANGES: Final = 4096


class KVCacheManager:
    """Block lists of the live requests, over one pool. Units: tokens are KV positions."""

    def __init__(
        self,
        *,
        num_blocks: int,
        tokens_per_block: int,
        max_seq_len: int,
        host_blocks: int = 0,
        enable_block_reuse: bool = True,
        enable_partial_reuse: bool = True,
    ) -> None:
        """Start with every block free. The last three are those of ``KVCacheConfig``."""
        self.num_blocks = num_blocks
        self.tokens_per_block = tokens_per_block
        self.max_seq_len = max_seq_len
        self.max_blocks_per_seq = self.blocks_for(max_seq_len)
        self.enable_block_reuse = enable_block_reuse
        self.ledger = BlockLedger(num_blocks=num_blocks, tokens_per_block=tokens_per_block, num_host_blocks=host_blocks)
        self._finder = PrefixFinder(self.ledger.tree, tokens_per_block=tokens_per_block, partial=enable_partial_reuse)
        self._blocks: dict[int, list[int]] = {}  # holds no empty list
        self._tables: dict[int, tuple[int, ...]] = {}  # tuples of the lists above, made on demand
        self._watched: dict[int, LlmRequest] = {}  # those whose blocks may enter the tree
        self._num_committed: dict[int, int] = {}  # leading blocks that are in the tree
        self.table_version = 0  # goes up by one with each change of a table
        self._changes: collections.deque[int] = collections.deque(maxlen=_REMEMBERED_CHANGES)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be had at once: free ones, and cached ones that nobody uses."""
        return self.ledger.num_free

    @property
    def num_cached_blocks(self) -> int:
        """Blocks of the device that nobody uses and a prompt may match."""
        return self.ledger.num_cached

    @property
    def live_request_ids(self) -> frozenset[int]:
        """Requests that own at least one block."""
        return frozenset(self._blocks)

    def free_block_ids(self) -> frozenset[int]:
        """Return the blocks whose content is worth nothing; for checks and pictures."""
        return self.ledger.pool.free_ids()

    def blocks_for(self, num_tokens: int) -> int:
        """Count the blocks that hold ``num_tokens`` tokens."""
        return -(-num_tokens // self.tokens_per_block)

    def num_reserved_blocks(self, request_id: int) -> int:
        """Count the blocks that a request owns; 0 for a request that owns none."""
        blocks = self._blocks.get(request_id)
        return 0 if blocks is None else len(blocks)

    def num_reserved_tokens(self, request_id: int) -> int:
        """Count the tokens that fit into a request's blocks; a longer length has to be reserved."""
        return self.num_reserved_blocks(request_id) * self.tokens_per_block

    def lacking(self, lengths: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Pick from (request id, tokens) those that do not fit into the blocks held, each with the blocks it lacks."""
        blocks, size = self._blocks, self.tokens_per_block
        owned = [len(blocks.get(request_id, ())) for request_id, _ in lengths]
        return [
            (request_id, num_tokens, -(-num_tokens // size) - count)
            for (request_id, num_tokens), count in zip(lengths, owned, strict=True)
            if num_tokens > count * size
        ]

    def block_table(self, request_id: int) -> tuple[int, ...]:
        """Return the request's blocks in the order of its tokens; the same tuple until they change."""
        table = self._tables.get(request_id)
        if table is None:
            table = self._tables[request_id] = tuple(self._blocks[request_id]) if request_id in self._blocks else ()
        return table

    def changed_since(self, version: int) -> frozenset[int] | None:
        """Name the requests whose table changed after that ``table_version``; None when that is not known.

        Whoever holds tables of many requests need not look at each of them every step. A table named here, of a
        request that still runs, has only grown; it is not known any more after a ``rewind``, or too many changes.
        """
        missed = self.table_version - version
        if missed > len(self._changes):
            return None
        return frozenset([self._changes[-1 - back] for back in range(missed)])

    # What is in the tree

    def reusable_tokens(self, request: LlmRequest) -> int:
        """Estimate what ``claim`` would credit, without claiming; 0 for a request that owns blocks already."""
        if not self._may_claim(request):
            return 0
        path = self._finder.path(request)
        tail = self._finder.tail(request, len(path), path[-1] if path else None)
        return len(path) * self.tokens_per_block + (0 if tail is None else tail[1])

    def num_shared_blocks(self, request: LlmRequest) -> int:
        """Count the blocks that ``claim`` would share with requests that own them now.

        Only these cost nothing: a cached block that is claimed is one of ``num_free_blocks`` before.
        """
        if not self._may_claim(request):
            return 0
        path = self._finder.path(request)
        low, high = 0, len(path)  # used nodes come first: whoever uses one uses its ancestors
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.ledger.is_used(path[middle]) else (low, middle)
        return low

    def claim(
        self, wanted: Sequence[tuple[LlmRequest, int]], copies: Copies, *, num_promised: int = 0
    ) -> list[tuple[int, int]]:
        """Give requests that own nothing the blocks of their prompts that are in the tree.

        wanted: each with the rows that it runs next, for which blocks must be left. num_promised: blocks that others
        will reserve in this step. Returns (request id, tokens), at least one, for each that got something.
        """
        newcomers = [Newcomer(request, num_rows) for request, num_rows in wanted if self._may_claim(request)]
        for newcomer in newcomers:
            self._watched[newcomer.request.request_id] = newcomer.request
        take_prefixes(
            newcomers, self._finder, self.ledger, copies, num_promised, tokens_per_block=self.tokens_per_block
        )
        found: list[tuple[int, int]] = []
        for newcomer in newcomers:
            if newcomer.blocks:
                request_id = newcomer.request.request_id
                self._blocks[request_id] = newcomer.blocks
                self._num_committed[request_id] = newcomer.num_whole
                self._note_change(request_id)
                found.append((request_id, newcomer.num_tokens))
        return found

    def watch(self, request: LlmRequest) -> None:
        """Let a request's blocks enter the tree although it claimed none: it was forked."""
        self._watched[request.request_id] = request

    def commit(self, request_id: int, num_tokens: int, *, priority: int = DEFAULT_PRIORITY) -> None:
        """Let the full blocks among the first ``num_tokens`` tokens be matched: their keys and values are final.

        priority: 0 .. 100, the lowest is evicted first. Blocks of a dummy, or of a request that never claimed, stay
        its own.
        """
        done, num_full = self._num_committed.get(request_id, 0), num_tokens // self.tokens_per_block
        if num_full <= done or request_id not in self._watched:
            return
        request, blocks = self._watched[request_id], self._blocks[request_id]
        assert num_full <= len(blocks), f"request {request_id} has {len(blocks)} blocks, {num_full} to commit"
        num_read = num_full * self.tokens_per_block
        assert num_read <= request.num_tokens, f"request {request_id} has tokens that the host does not know yet"
        node = self.ledger.node_of(blocks[done - 1]) if done else None
        for index in range(done, num_full):
            key = self._finder.key(request, index)
            if key is None:
                break
            node = self.ledger.tree.root(namespace_of(request)) if node is None else node
            node = self.ledger.commit(blocks[index], node, key, priority)
            self._num_committed[request_id] = index + 1

    # Growing and shrinking

    def reserve(
        self, request_id: int, num_tokens: int, extra: int = 0, *, copies: Copies | None = None
    ) -> tuple[int, ...]:
        """Own enough blocks for ``num_tokens + extra`` tokens; return the blocks added, () when none were needed.

        copies: collects what an eviction offloads; without it evicted content is forgotten.
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
        self._require_free(request_id, needed - owned, f"hold {num_tokens + extra} tokens")
        added = self.ledger.allocate(needed - owned, after=blocks[-1] if blocks else None, copies=copies)
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

    def rewind(self, request_id: int, num_tokens: int) -> int:
        """Keep what the first ``num_tokens`` tokens need; return how many of them are held.

        The rest of the last block will be written again, so it leaves the tree. One that other requests use as well
        cannot be written: it is dropped, and fewer tokens than asked for are held. Tokens never committed are in
        no such block.
        """
        blocks = self._blocks.get(request_id)
        num_kept = self.blocks_for(num_tokens)
        if blocks is None or num_kept > len(blocks):
            return min(num_tokens, self.num_reserved_tokens(request_id))
        if num_tokens % self.tokens_per_block and self.ledger.num_uses(blocks[num_kept - 1]) > 1:
            num_kept -= 1
            num_tokens = num_kept * self.tokens_per_block
        if num_kept < len(blocks):
            self._truncate(request_id, num_kept)
            self._changes.clear()  # whoever holds the old table must not take the next one for its continuation
        if num_tokens % self.tokens_per_block:
            self.ledger.make_private(blocks[num_kept - 1])
        self._cut_committed(request_id, num_tokens // self.tokens_per_block)
        return num_tokens

    def fork(self, parent_id: int, child_id: int, num_tokens: int) -> tuple[BlockCopy, ...]:
        """Let a new request begin with a parent's first tokens: full blocks are shared, the one begun is copied.

        Returns the copies to run before the next forward. Raises: OutOfBlocksError; then nothing changed.
        """
        blocks, num_full = self._blocks.get(parent_id, []), num_tokens // self.tokens_per_block
        assert child_id not in self._blocks, f"request {child_id} owns blocks already"
        assert self.blocks_for(num_tokens) <= len(blocks), f"request {parent_id} does not hold {num_tokens} tokens"
        copies: Copies = []
        begun: tuple[int, ...] = ()
        if num_tokens % self.tokens_per_block:
            self._require_free(child_id, 1, f"copy the block that request {parent_id} has begun")
            begun = self.ledger.allocate(1, copies=copies)
            kept = num_tokens % self.tokens_per_block
            copies.append(BlockCopy(CopyKind.DEVICE, blocks[num_full], begun[0], kept))
        for block in blocks[:num_full]:
            self.ledger.share(block)
        if num_tokens:
            self._blocks[child_id] = [*blocks[:num_full], *begun]
            self._num_committed[child_id] = min(num_full, self._num_committed.get(parent_id, 0))
            self._note_change(child_id)
        return tuple(copies)

    def free(self, request_id: int) -> None:
        """Give back all blocks of a request; one that owns none is fine. What is in the tree stays there."""
        self._truncate(request_id, 0)
        self._watched.pop(request_id, None)
        self._num_committed.pop(request_id, None)
        self._finder.forget(request_id)

    def distrust(self, copies: Sequence[BlockCopy]) -> None:
        """Forget content that copies of an undone step moved between the tiers; its requests are freed already."""
        if copies:
            self.ledger.distrust(copies)

    def _may_claim(self, request: LlmRequest) -> bool:
        return self.enable_block_reuse and not request.is_dummy and request.request_id not in self._blocks

    def _require_free(self, request_id: int, count: int, purpose: str) -> None:
        if count > self.ledger.num_free:
            message = (
                f"request {request_id} needs {count} more KV blocks to {purpose}, and "
                f"{self.ledger.num_free} of {self.num_blocks} are free; wait for a request to finish, or raise "
                f"KVCacheConfig.num_blocks"
            )
            raise OutOfBlocksError(message)

    def _truncate(self, request_id: int, num_blocks: int) -> None:
        blocks = self._blocks.get(request_id)
        if blocks is None:
            self._tables.pop(request_id, None)
        if blocks is None or len(blocks) <= num_blocks:
            return
        self._note_change(request_id)
        dropped = blocks[num_blocks:]
        del blocks[num_blocks:]
        if not blocks:
            del self._blocks[request_id]
        self.ledger.release(dropped)
        self._cut_committed(request_id, num_blocks)

    def _cut_committed(self, request_id: int, num_blocks: int) -> None:
        if self._num_committed.get(request_id, 0) > num_blocks:
            self._num_committed[request_id] = num_blocks

    def _note_change(self, request_id: int) -> None:
        self._tables.pop(request_id, None)
        self._changes.append(request_id)
        self.table_version += 1

    def check(self) -> None:
        """Recompute conservation: every block is free, cached, or in the tables that its count says."""
        self.ledger.check(self._blocks.values())
        self._finder.check()
        assert all(0 < len(blocks) <= self.max_blocks_per_seq for blocks in self._blocks.values())
        for request_id, table in self._tables.items():
            assert table == tuple(self._blocks.get(request_id, ())), f"request {request_id} has a stale block table"
        for request_id, done in self._num_committed.items():
            nodes = [self.ledger.node_of(block) for block in self._blocks.get(request_id, [])[:done]]
            assert len(nodes) == done, f"request {request_id} committed more blocks than it owns"
            assert all(node is not None for node in nodes)
            request = self._watched.get(request_id)
            if request is not None:
                assert [node.key for node in nodes if node] == [self._finder.key(request, i) for i in range(done)]

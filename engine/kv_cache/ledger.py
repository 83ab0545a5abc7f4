"""BlockLedger: what each device block is at this moment: free, used by so many requests, or kept for a later match.

    free    in the pool, content worthless
    used    in the block tables of one request or more; written only by the one that owns it alone, and never once
            its content is in the reuse tree
    cached  in nobody's table, its content in the reuse tree; goes, leaves first, when a block is needed

Whoever uses a node's content uses that of all its ancestors (a request's blocks are a path from the root), so a cached
node has only cached nodes below it, and every cached block can be had by taking leaves one after another: free and
cached blocks together are what may be asked for. On eviction the content moves to the host tier if there is one.

A request that computes what the tree holds already keeps its own block: a table never changes under a running
step. The node then lies in several blocks, of which only the last one used stays cached.

Does not: know requests or tokens (``manager.py``, ``prefix.py``), run copies, or hold bytes. Torch-free.
Source: reference counts and reuse of TensorRT-LLM's block manager and vLLM's block pool.
"""

import collections
from collections.abc import Hashable, Iterable, Sequence

from engine.kv_cache.blocks import BlockPool
from engine.kv_cache.copies import BlockCopy, CopyKind
from engine.kv_cache.eviction import EvictionQueue
from engine.kv_cache.host_pool import HostPool
from engine.kv_cache.reuse_tree import Node, ReuseTree

Copies = list[BlockCopy]


class BlockLedger:
    """Free, used and cached blocks of the device, and the host tier behind them.

    Arguments named ``copies`` collect what must be copied before the next forward, in order. Without one, whatever is
    evicted is forgotten and not offloaded.
    """

    def __init__(self, *, num_blocks: int, tokens_per_block: int, num_host_blocks: int = 0) -> None:
        """Start with every block free."""
        self.pool = BlockPool(num_blocks)
        self.tree = ReuseTree()
        self.host = HostPool(num_host_blocks, self.tree)
        self._tokens_per_block = tokens_per_block
        self._refs: dict[int, int] = {}  # tables that hold a used block
        self._nodes: dict[int, Node] = {}  # of used and cached blocks whose content is in the tree
        self._leaves = EvictionQueue(self._may_go)
        self._clock = 0
        self.num_cached = 0
        self.num_evicted = 0

    @property
    def num_free(self) -> int:
        """Blocks that can be had at once: free ones and cached ones."""
        return self.pool.num_free + self.num_cached

    def node_of(self, block: int) -> Node | None:
        """Return the node whose content a block holds; None for a block that its request still writes."""
        return self._nodes.get(block)

    def num_uses(self, block: int) -> int:
        """Count the tables that hold a block."""
        return self._refs.get(block, 0)

    def is_used(self, node: Node) -> bool:
        """Whether some table holds the node's content."""
        return bool(node.blocks) and node.blocks[0] in self._refs

    def allocate(self, count: int, *, after: int | None = None, copies: Copies | None = None) -> tuple[int, ...]:
        """Take ``count`` blocks for one table, evicting what must go; the caller has asked ``num_free``."""
        num_free = self.pool.num_free
        assert count <= num_free + self.num_cached, f"{count} blocks asked for, {self.num_free} to be had"
        if count <= num_free:
            blocks = self.pool.allocate(count, after=after)
        else:
            free = self.pool.allocate(num_free, after=after) if num_free else ()
            blocks = (*free, *sorted([self._evict(copies) for _ in range(count - num_free)]))
        for block in blocks:
            self._refs[block] = 1
        return blocks

    def share(self, block: int) -> None:
        """Put a used block into one more table."""
        self._refs[block] += 1

    def acquire(self, node: Node) -> int:
        """Put a node's block into one more table; a cached one is used from now on."""
        block = node.blocks[0]
        uses = self._refs.get(block, 0)
        if not uses:
            self.num_cached -= 1
        self._refs[block] = uses + 1
        return block

    def onboard(self, node: Node, copies: Copies) -> int:
        """Bring a node's content back from the host into a block for one table; the caller has asked ``num_free``."""
        with self.host.held(node):  # or what the allocation evicts might be copied over it
            (block,) = self.allocate(1, copies=copies)
        host_block = self.host.move_out(node)
        copies.append(BlockCopy(CopyKind.ONBOARD, host_block, block, self._tokens_per_block))
        self._put_on_device(node, block)
        return block

    def copy_beginning(self, node: Node, num_tokens: int, *, after: int | None, copies: Copies) -> int | None:
        """Copy a node's first tokens into a new block for one table; None when there is no block besides its own."""
        if node.blocks:
            source = self.acquire(node)  # or the allocation might evict it
            block = None
            if self.num_free:
                (block,) = self.allocate(1, after=after, copies=copies)
                copies.append(BlockCopy(CopyKind.DEVICE, source, block, num_tokens))
            self.release((source,))
            return block
        source = node.host_block
        if source is None or not self.num_free:
            return None
        with self.host.held(node):
            (block,) = self.allocate(1, after=after, copies=copies)
        copies.append(BlockCopy(CopyKind.ONBOARD, source, block, num_tokens))
        return block

    def commit(self, block: int, parent: Node, key: Hashable, priority: int) -> Node:
        """Enter a used block, full and final, into the tree below its predecessor's node; return its node."""
        node = self._nodes.get(block)
        if node is not None:
            assert node.key == key, f"block {block} is shared by tables of different tokens"
            return node
        node = parent.children.get(key)
        if node is None:
            node = self.tree.add(parent, key)
            node.priority = priority
        elif node.host_block is not None:
            self.host.move_out(node)  # computed again although it was there: the fresh copy is the nearer one
        elif not self.is_used(node):
            self.pool.free((self._uncache(node),))
        node.used = self._clock
        node.priority = max(node.priority, priority)
        self._put_on_device(node, block)
        return node

    def release(self, blocks: Sequence[int]) -> None:
        """Take blocks out of one table. Order: that of the table, so that leaves are let go of before their parents."""
        self._clock += 1
        freed: list[int] = []
        refs, nodes = self._refs, self._nodes
        for block in reversed(blocks):
            uses = refs[block]
            if uses > 1:
                refs[block] = uses - 1
                continue
            del refs[block]
            node = nodes.get(block)
            if node is None:
                freed.append(block)
            elif len(node.blocks) > 1:
                self._take_off_device(node, block)
                freed.append(block)
            else:
                self.num_cached += 1
                node.used = self._clock
                self._note_leaf(node)
        if freed:
            freed.reverse()
            self.pool.free(freed)

    def make_private(self, block: int) -> None:
        """Forget the content of a block that one table holds, because that table is about to write it again."""
        assert self._refs[block] == 1, f"block {block} is in {self._refs[block]} tables"
        node = self._nodes.get(block)
        if node is not None:
            self._take_off_device(node, block)
            if not node.blocks:
                self._forget(node)

    def distrust(self, copies: Iterable[BlockCopy]) -> None:
        """Forget what these copies moved between the tiers: whether they ran is not known any more."""
        for copy in copies:
            node = None
            if copy.kind is CopyKind.OFFLOAD:
                node = self.host.node_at(copy.target)
            elif copy.kind is CopyKind.ONBOARD:
                node = self._nodes.get(copy.target)
            if node is not None:
                if node.blocks:
                    self.pool.free((self._uncache(node),))
                self._forget(node)

    def _evict(self, copies: Copies | None) -> int:
        node = self._leaves.pop()
        assert node is not None, "cached blocks, and no leaf among them"
        self.num_evicted += 1
        block = self._uncache(node)
        host_block = None if copies is None else self.host.move_in(node)
        if copies is None or host_block is None:
            self._forget(node)
        else:
            copies.append(BlockCopy(CopyKind.OFFLOAD, block, host_block, self._tokens_per_block))
        return block

    def _put_on_device(self, node: Node, block: int) -> None:
        if not node.blocks and node.parent is not None:
            node.parent.num_device_children += 1
        node.blocks.append(block)
        self._nodes[block] = node

    def _take_off_device(self, node: Node, block: int) -> None:
        node.blocks.remove(block)
        del self._nodes[block]
        if not node.blocks and node.parent is not None:
            node.parent.num_device_children -= 1
            self._note_leaf(node.parent)

    def _uncache(self, node: Node) -> int:
        """Take a node that nobody uses off the device; whoever calls has its block."""
        (block,) = node.blocks
        assert block not in self._refs, f"block {block} is used"
        self._take_off_device(node, block)
        self.num_cached -= 1
        return block

    def _forget(self, node: Node) -> None:
        """Cut a node that is on neither tier out of the tree, and what lies below it, which nobody uses."""
        for gone in self.tree.remove(node):
            if gone.blocks:
                self.pool.free((self._uncache(gone),))
            elif gone.host_block is not None:
                self.host.move_out(gone)

    def _note_leaf(self, node: Node) -> None:
        if self._may_go(node):
            self._leaves.push(node)

    def _may_go(self, node: Node) -> bool:
        blocks = node.blocks
        return bool(blocks) and blocks[0] not in self._refs and not node.num_device_children

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Recompute everything from the tables and the tree: free + used + cached blocks are all blocks."""
        self.pool.check()
        self.tree.check()
        self.host.check()
        assert self._refs == dict(collections.Counter(block for table in tables for block in table))
        nodes = list(self.tree.nodes())
        assert {block: node for node in nodes for block in node.blocks} == self._nodes
        cached = {node.blocks[0] for node in nodes if node.blocks and node.blocks[0] not in self._refs}
        assert len(cached) == self.num_cached
        free = self.pool.free_ids()
        assert len(free) + len(cached) + len(self._refs) == self.pool.num_blocks
        assert free | cached | self._refs.keys() == set(range(self.pool.num_blocks))
        for node in nodes:
            assert len(node.blocks) < 2 or all(block in self._refs for block in node.blocks)
            if node.blocks and node.blocks[0] in cached:
                assert not any(self.is_used(child) for child in node.children.values())
        self._leaves.check({node for node in nodes if self._may_go(node)})

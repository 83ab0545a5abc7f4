"""HostPool: the host tier's blocks: which node of the reuse tree each one keeps, and which goes when all are taken.

Only content that nobody uses lies here: a node moves in when its device block is needed, and out when a prompt
matches it again. The one that goes first is a node without children, by the same order as on the device.

Does not: hold bytes (``storage.py``), copy, or touch device blocks. Torch-free.
Source: the secondary pool of TensorRT-LLM's block manager.
"""

import contextlib
from collections.abc import Generator

from engine.kv_cache.eviction import EvictionQueue, rank
from engine.kv_cache.reuse_tree import Node, ReuseTree


class HostPool:
    """Host blocks 0 .. num_blocks - 1. A node's ``host_block`` is written here and nowhere else."""

    def __init__(self, num_blocks: int, tree: ReuseTree) -> None:
        """Start with every block free."""
        self.num_blocks = num_blocks
        self._tree = tree
        self._free = list(range(num_blocks - 1, -1, -1))  # a stack; the lowest comes first
        self._nodes: dict[int, Node] = {}
        self._leaves = EvictionQueue(_may_go)

    def node_at(self, block: int) -> Node | None:
        """Return the node that a host block keeps."""
        return self._nodes.get(block)

    def move_in(self, node: Node) -> int | None:
        """Give a node a block, at the cost of the leaf that goes first; None when every leaf is worth more.

        The node must have left the device, so that nothing below it counts as worth more than itself.
        """
        if not self._free:
            worst = self._leaves.peek()
            if worst is None or rank(worst) > rank(node):
                return None
            self._leaves.pop()
            self._tree.remove(worst)
            self.move_out(worst)
        block = node.host_block = self._free.pop()
        self._nodes[block] = node
        self.note_leaf(node)
        return block

    def move_out(self, node: Node) -> int:
        """Free the block of a node that goes to the device, or was cut off; its parent may be a leaf now."""
        block = node.host_block
        assert block is not None, "the node is not on the host"
        node.host_block = None
        del self._nodes[block]
        self._free.append(block)
        if node.parent is not None:
            self.note_leaf(node.parent)
        return block

    @contextlib.contextmanager
    def held(self, node: Node) -> Generator[None]:
        """Keep a node where it is although other content moves in meanwhile."""
        block, node.host_block = node.host_block, None
        try:
            yield
        finally:
            node.host_block = block
            self.note_leaf(node)

    def note_leaf(self, node: Node) -> None:
        """Queue a node if it may go."""
        if _may_go(node):
            self._leaves.push(node)

    def check(self) -> None:
        """Recompute conservation and the queue from the tree."""
        held = {node.host_block: node for node in self._tree.nodes() if node.host_block is not None}
        assert held == self._nodes, "a host block keeps a node that is not in the tree, or the reverse"
        assert sorted([*self._free, *self._nodes]) == list(range(self.num_blocks))
        self._leaves.check({node for node in held.values() if _may_go(node)})


def _may_go(node: Node) -> bool:
    return node.host_block is not None and not node.children

"""ReuseTree: what full blocks hold, as a tree: a block's content is its own tokens after those of its ancestors.

Keys and values of a block depend on every token before it, so a block is named by the path from the root: a child is
found under its parent by its own tokens (a tuple) or by a key that the caller gives. A root stands for what must
agree besides tokens: salt, adapter, and whether keys are tokens or given. Matching costs one look-up a block, and
stops at the first that is missing.

A node says where its content lies: in device blocks (several when requests computed the same content side by side),
or in one host block. A node on the host has no child on the device, because a match onboards from the root down.

Does not: count references, evict, allocate or copy (``ledger.py``). Torch-free.
Source: the radix trees over blocks of TensorRT-LLM and SGLang; one node a block, as in vLLM's hash table.
"""

import bisect
import dataclasses
from collections.abc import Hashable, Iterator, Sequence

DEFAULT_PRIORITY = 35  # of 0 .. 100; TensorRT-LLM's default

Tokens = tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Namespace:
    """What two prompts must have in common before their tokens are compared. given_keys: keys are no tokens."""

    cache_salt: str | None = None
    lora_id: int | None = None
    given_keys: bool = False


class Node:
    """One full block's content. Everything but the tree's links is written by the ledger."""

    __slots__ = (
        "blocks",
        "children",
        "has_token_keys",
        "host_block",
        "key",
        "num_device_children",
        "parent",
        "priority",
        "sorted_keys",
        "used",
    )

    def __init__(self, key: Hashable, parent: "Node | None") -> None:
        """Hold no content yet."""
        self.key = key
        self.parent = parent  # None for a root
        self.has_token_keys = parent.has_token_keys if parent is not None else _are_tokens(key)  # of its children
        self.children: dict[Hashable, Node] = {}
        self.sorted_keys: list[Tokens] = []  # of the children, where keys are tokens
        self.blocks: list[int] = []  # device blocks with this content
        self.host_block: int | None = None
        self.num_device_children = 0
        self.priority = DEFAULT_PRIORITY
        self.used = 0  # the ledger's clock when somebody last let go of it

    @property
    def is_alive(self) -> bool:
        """Whether its content is somewhere; a node that was removed never comes back."""
        return bool(self.blocks) or self.host_block is not None


class ReuseTree:
    """Nodes under one root for each namespace; roots without children are not kept."""

    def __init__(self) -> None:
        """Start empty."""
        self._roots: dict[Namespace, Node] = {}

    def find_root(self, namespace: Namespace) -> Node | None:
        """Return the root of a namespace that holds something."""
        return self._roots.get(namespace)

    def root(self, namespace: Namespace) -> Node:
        """Return the root under which something is about to be added."""
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = Node(namespace, None)
        return root

    def add(self, parent: Node, key: Hashable) -> Node:
        """Add a child that the parent does not have; where keys are tokens, they stay sorted for ``nearest``."""
        node = parent.children[key] = Node(key, parent)
        if parent.has_token_keys:
            bisect.insort(parent.sorted_keys, key)  # pyright: ignore[reportArgumentType]
        return node

    def nearest(self, parent: Node, tokens: Tokens) -> tuple[Node, int] | None:
        """Find the child that shares the longest beginning with ``tokens``, and its length; None when none does.

        Of sorted keys only the two neighbours of a sequence can share the most with it.
        """
        keys, best = parent.sorted_keys, None
        at = bisect.bisect_left(keys, tokens)
        for key in keys[max(0, at - 1) : at + 1]:
            common = _common_length(key, tokens)
            if common and (best is None or common > best[1]):
                best = (parent.children[key], common)
        return best

    def remove(self, node: Node) -> list[Node]:
        """Cut a node off with all that lies below it; return them, children before parents."""
        parent = node.parent
        assert parent is not None, "a root goes with its last child"
        del parent.children[node.key]
        if parent.sorted_keys:
            del parent.sorted_keys[bisect.bisect_left(parent.sorted_keys, node.key)]  # pyright: ignore[reportArgumentType]
        if parent.parent is None and not parent.children and isinstance(parent.key, Namespace):
            self._roots.pop(parent.key, None)
        gone = list(_below(node)) if node.children else [node]
        gone.reverse()
        return gone

    def nodes(self) -> Iterator[Node]:
        """Walk all nodes but the roots, parents first; for checks and pictures."""
        for root in self._roots.values():
            for node in _below(root):
                if node is not root:
                    yield node

    def roots(self) -> tuple[Node, ...]:
        """Return the roots, in the order of their first use."""
        return tuple(self._roots.values())

    def check(self) -> None:
        """Recompute links, sorted keys and counts of children on the device."""
        for root in self._roots.values():
            assert root.parent is None
            for node in _below(root):
                assert all(child.parent is node and child.key == key for key, child in node.children.items())
                wanted = sorted(node.children) if node.has_token_keys else []  # pyright: ignore[reportArgumentType]
                assert node.sorted_keys == wanted, "the keys of a node's children are not in order"
                assert node.num_device_children == sum(bool(child.blocks) for child in node.children.values())
                if node is root:
                    continue
                assert bool(node.blocks) != (node.host_block is not None), "content lies on one tier"
                assert node.blocks or not node.num_device_children, "a node on the host has a child on the device"


def _are_tokens(root_key: Hashable) -> bool:
    return isinstance(root_key, Namespace) and not root_key.given_keys


def _common_length(key: Sequence[int], tokens: Sequence[int]) -> int:
    if key[: len(tokens)] == tokens:
        return len(tokens)
    return next(at for at, (own, wanted) in enumerate(zip(key, tokens, strict=False)) if own != wanted)


def _below(node: Node) -> Iterator[Node]:
    """Walk the node and all below it, parents first, without recursion: chains are as long as prompts."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(node.children.values())

"""Ledger: who holds each KV block and what the reuse tree keeps, as changes from one moment to the next.

A snapshot carries what changed (``LedgerView``); a ``LedgerState`` is what stands when all changes up to a moment are
applied. A step has two moments: after its reservation, and after its commit. While two steps are open the second is
left out, so that the changes of the steps, one after the other, are in the order in which they happened.

Does not: read the engine (``ledger_watch.py``), or know steps. Torch-free.
Source: the states free, used and cached of ``engine/kv_cache/ledger.py``; the tree of ``reuse_tree.py``.
"""

import dataclasses
from collections.abc import Sequence
from typing import Final

NO_NODE: Final = -1  # the parent of a node below the root; also: not on the host
COPY_KINDS: Final = ("DEVICE", "OFFLOAD", "ONBOARD")  # inside the device, to the host, back from it
KEY_TOKENS: Final = 6  # of a node's key, as many as are kept


@dataclasses.dataclass(frozen=True, slots=True)
class CopyView:
    """One block's first tokens, copied before the forward; kind is one of COPY_KINDS."""

    kind: str
    source: int
    target: int
    num_tokens: int


@dataclasses.dataclass(frozen=True, slots=True)
class OwnersView:
    """The requests whose tables hold a block now, ascending; dummies are below 0. Nobody: free, or cached."""

    block: int
    request_ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class NodeView:
    """A node that entered the reuse tree: one full block's content.

    parent: NO_NODE below the root. tokens: the first of its key, as far as they are tokens. num_tokens: of the block.
    label: a key that was given, or the salt of the first node below a salted root; "" for a plain one.
    """

    node: int
    parent: int
    tokens: tuple[int, ...]
    num_tokens: int
    label: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class PlaceView:
    """Where a node's content lies now: device blocks, or one block of the host (else NO_NODE)."""

    node: int
    blocks: tuple[int, ...]
    host_block: int


@dataclasses.dataclass(frozen=True, slots=True)
class LedgerView:
    """What changed. Order: nodes are added parents first, then placed; those removed went before that."""

    num_blocks: int
    num_host_blocks: int
    owners: tuple[OwnersView, ...] = ()
    added: tuple[NodeView, ...] = ()
    places: tuple[PlaceView, ...] = ()
    removed: tuple[int, ...] = ()


class LedgerState:
    """The ledger at one moment: owners by block, nodes and places by node id."""

    def __init__(self) -> None:
        """Start with every block free, and an empty tree."""
        self.num_blocks = self.num_host_blocks = 0
        self.owners: dict[int, tuple[int, ...]] = {}  # of blocks that somebody holds
        self.nodes: dict[int, NodeView] = {}
        self.places: dict[int, PlaceView] = {}

    def apply(self, view: LedgerView | None) -> None:
        """Go on by one moment; None: nothing is known to have changed."""
        if view is None:
            return
        self.num_blocks, self.num_host_blocks = view.num_blocks, view.num_host_blocks
        for node in view.removed:
            self.nodes.pop(node, None)
            self.places.pop(node, None)
        self.nodes.update({one.node: one for one in view.added})
        self.places.update({one.node: one for one in view.places})
        for one in view.owners:
            if one.request_ids:
                self.owners[one.block] = one.request_ids
            else:
                self.owners.pop(one.block, None)

    def whole(self) -> LedgerView | None:
        """Return everything that stands here as one change from an empty ledger; None while nothing is known."""
        if not self.num_blocks:
            return None
        return LedgerView(
            self.num_blocks,
            self.num_host_blocks,
            tuple([OwnersView(block, ids) for block, ids in sorted(self.owners.items())]),
            tuple(self.nodes.values()),
            tuple(self.places.values()),
        )

    def cached_blocks(self) -> dict[int, int]:
        """Return the device blocks that nobody holds and a prompt may match, each with its node."""
        found = {block: place.node for place in self.places.values() for block in place.blocks}
        return {block: node for block, node in found.items() if block not in self.owners}

    def host_blocks(self) -> dict[int, int]:
        """Return the host's blocks that keep something, each with its node."""
        return {place.host_block: place.node for place in self.places.values() if place.host_block != NO_NODE}

    @property
    def num_free(self) -> int:
        """Blocks that can be had at once: those that no table holds."""
        return self.num_blocks - len(self.owners)

    def check(self) -> None:
        """Recompute: a node has a parent that is there, and lies on one tier; no block keeps two nodes."""
        assert self.nodes.keys() == self.places.keys()
        assert all(node.parent == NO_NODE or node.parent in self.nodes for node in self.nodes.values())
        for place in self.places.values():
            assert bool(place.blocks) != (place.host_block != NO_NODE), f"node {place.node} lies on no tier, or both"
        kept = [block for place in self.places.values() for block in place.blocks]
        assert len(kept) == len(set(kept))
        assert all(0 <= block < self.num_blocks for block in (*kept, *self.owners))


def join(views: Sequence[LedgerView | None]) -> LedgerView | None:
    """Return several changes, in their order, as one change from an empty ledger."""
    state = LedgerState()
    for view in views:
        state.apply(view)
    return state.whole()


def compose(first: LedgerView | None, then: LedgerView | None) -> LedgerView | None:
    """Return two changes, one after the other, as one: that of a step which was undone belongs to the next."""
    if first is None or then is None:
        return first if then is None else then
    gone = set(then.removed)
    owners = {one.block: one for one in (*first.owners, *then.owners)}
    places = {one.node: one for one in (*first.places, *then.places) if one.node not in gone}
    added = tuple([node for node in (*first.added, *then.added) if node.node not in gone])
    removed = tuple(sorted({*first.removed, *then.removed}))
    return dataclasses.replace(
        then, owners=tuple(owners.values()), added=added, places=tuple(places.values()), removed=removed
    )


def without_text(view: LedgerView | None) -> LedgerView | None:
    """Return a change without what its nodes say about the prompts."""
    if view is None:
        return None
    bare = tuple([dataclasses.replace(node, tokens=(), label="") for node in view.added])
    return dataclasses.replace(view, added=bare)

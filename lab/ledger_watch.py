"""LedgerWatch: what changed in an engine's KV ledger since it was last looked at.

It reads the manager's tables, of which those that did not change are the same tuples, and walks the reuse tree; it
keeps what it saw, and a number for each node, since the engine's nodes have no names.

Does not: change what it reads, or keep steps (``recorder.py``). Torch-free.
Source: own; a table of owners answers which block belongs to whom, which no viewer that we know shows.
"""

from typing import cast

from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.reuse_tree import Namespace, Node
from lab.ledger import KEY_TOKENS, NO_NODE, LedgerView, NodeView, OwnersView, PlaceView

_FIRST_DUMMY_ID = 1 << 62
_MAX_LABEL = 24


def short_id(request_id: int) -> int:
    """Fold a dummy's id (they count down from 2**64 - 1) to -2, -3, ...; others stay."""
    return request_id if request_id < _FIRST_DUMMY_ID else request_id - (1 << 64) - 1


class LedgerWatch:
    """One manager, and what was seen of it last."""

    def __init__(self, kv_cache: KVCacheManager) -> None:
        """See nothing yet: the first change holds everything that stands."""
        self._kv_cache = kv_cache
        self._tables: dict[int, tuple[int, ...]] = {}
        self._holders: dict[int, list[int]] = {}  # block -> ids of the tables that hold it
        self._nodes: dict[Node, int] = {}
        self._places: dict[int, tuple[tuple[int, ...], int]] = {}
        self._next_node = 0

    def changes(self) -> LedgerView:
        """Return what changed since the last call. Cost: O(live requests, changed tables, nodes of the tree)."""
        ledger = self._kv_cache.ledger
        owners = self._owners()
        added: list[NodeView] = []
        places: list[PlaceView] = []
        seen: dict[Node, int] = {}
        for node in ledger.tree.nodes():  # parents first
            number = self._nodes.get(node)
            if number is None:
                number = self._next_node
                self._next_node += 1
                added.append(_node_view(node, number, seen, self._kv_cache.tokens_per_block))
            seen[node] = number
            host_block = NO_NODE if node.host_block is None else node.host_block
            place = (tuple(node.blocks), host_block)
            if self._places.get(number) != place:
                self._places[number] = place
                places.append(PlaceView(number, *place))
        removed = sorted([number for node, number in self._nodes.items() if node not in seen])
        for number in removed:
            del self._places[number]
        self._nodes = seen
        num_blocks, num_host_blocks = self._kv_cache.num_blocks, ledger.host.num_blocks
        return LedgerView(num_blocks, num_host_blocks, owners, tuple(added), tuple(places), tuple(removed))

    def _owners(self) -> tuple[OwnersView, ...]:
        manager, touched = self._kv_cache, set[int]()
        live = manager.live_request_ids
        for request_id in [*(self._tables.keys() - live), *sorted(live)]:
            before = self._tables.get(request_id, ())
            table = manager.block_table(request_id) if request_id in live else ()
            if table is before:
                continue
            gone, new = set(before) - set(table), set(table) - set(before)
            for block in gone:
                self._holders[block].remove(short_id(request_id))
            for block in new:
                self._holders.setdefault(block, []).append(short_id(request_id))
            touched |= gone | new
            if table:
                self._tables[request_id] = table
            else:
                del self._tables[request_id]
        return tuple([OwnersView(block, tuple(sorted(self._holders[block]))) for block in sorted(touched)])

    def check(self) -> None:
        """Compare what was seen last with the manager, which must not have changed since."""
        held: dict[int, list[int]] = {}
        for request_id in sorted(self._kv_cache.live_request_ids):
            for block in self._kv_cache.block_table(request_id):
                held.setdefault(block, []).append(short_id(request_id))
        kept = {block: sorted(ids) for block, ids in self._holders.items() if ids}
        assert kept == {block: sorted(ids) for block, ids in held.items()}
        nodes = list(self._kv_cache.ledger.tree.nodes())
        assert set(nodes) == set(self._nodes)
        assert self._places.keys() == set(self._nodes.values())


def _node_view(node: Node, number: int, numbers: dict[Node, int], tokens_per_block: int) -> NodeView:
    parent = node.parent
    assert parent is not None, "a root is no node of the tree"
    is_first = parent not in numbers
    label = ""
    if is_first and isinstance(parent.key, Namespace) and parent.key.cache_salt is not None:
        label = parent.key.cache_salt[:_MAX_LABEL]
    tokens: tuple[int, ...] = ()
    if parent.has_token_keys:
        tokens = cast("tuple[int, ...]", node.key)[:KEY_TOKENS]
    else:
        label = f"{label} {node.key}".strip()[:_MAX_LABEL]
    return NodeView(number, NO_NODE if is_first else numbers[parent], tokens, tokens_per_block, label)

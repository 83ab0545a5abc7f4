import pytest

from engine.kv_cache.host_pool import HostPool
from engine.kv_cache.reuse_tree import Namespace, ReuseTree


def chain(tree, *keys, parent=None):
    """Nodes below one another that lie nowhere yet."""
    nodes = []
    for key in keys:
        parent = tree.add(parent or tree.root(Namespace()), key)
        nodes.append(parent)
    return nodes


def put(host, node, used=0):
    node.used = used
    return host.move_in(node)


def test_nodes_get_the_lowest_blocks_and_give_them_back():
    tree = ReuseTree()
    host = HostPool(3, tree)
    a, b = chain(tree, (1,), (2,))
    assert (put(host, a), put(host, b)) == (0, 1)
    assert [host.node_at(block) for block in range(3)] == [a, b, None]
    tree.remove(b)
    assert host.move_out(b) == 1
    assert host.node_at(1) is None
    host.check()


def test_a_full_pool_lets_the_leaf_go_that_was_unused_for_longest():
    tree = ReuseTree()
    host = HostPool(2, tree)
    (a,), (b,), (c,) = chain(tree, (1,)), chain(tree, (2,)), chain(tree, (3,))
    put(host, a, used=2)
    put(host, b, used=1)
    assert put(host, c, used=3) == 1
    assert not b.is_alive
    assert (2,) not in tree.root(Namespace()).children
    host.check()


def test_a_parent_goes_after_its_children():
    tree = ReuseTree()
    host = HostPool(2, tree)
    parent, child = chain(tree, (1,), (2,))
    put(host, child, used=5)
    put(host, parent, used=5)
    (new,) = chain(tree, (3,))
    put(host, new, used=6)
    assert parent.is_alive
    assert not child.is_alive
    (newer,) = chain(tree, (4,))
    put(host, newer, used=7)
    assert not parent.is_alive
    host.check()


def test_content_is_not_kept_at_the_cost_of_what_is_worth_more():
    tree = ReuseTree()
    host = HostPool(1, tree)
    (kept,), (other,) = chain(tree, (1,)), chain(tree, (2,))
    kept.priority = 80
    put(host, kept)
    assert put(host, other, used=9) is None
    assert host.node_at(0) is kept
    tree.remove(other)
    host.check()


def test_a_pool_without_blocks_takes_nothing():
    tree = ReuseTree()
    (node,) = chain(tree, (1,))
    host = HostPool(0, tree)
    assert host.move_in(node) is None
    tree.remove(node)
    host.check()


def test_a_held_node_stays_while_others_move_in_and_may_go_afterwards():
    tree = ReuseTree()
    host = HostPool(1, tree)
    (held,), (first,), (second,) = chain(tree, (1,)), chain(tree, (2,)), chain(tree, (3,))
    put(host, held)
    with host.held(held):
        assert put(host, first, used=8) is None
    assert host.node_at(0) is held
    tree.remove(first)
    assert put(host, second, used=9) == 0
    host.check()


def test_check_notices_a_node_that_is_not_in_the_tree():
    tree = ReuseTree()
    host = HostPool(1, tree)
    (node,) = chain(tree, (1,))
    put(host, node)
    tree.remove(node)
    with pytest.raises(AssertionError, match="not in the tree"):
        host.check()

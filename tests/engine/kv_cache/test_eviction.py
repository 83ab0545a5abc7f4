import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kv_cache.eviction import EvictionQueue, rank
from engine.kv_cache.reuse_tree import Node


def leaf(priority=35, used=0):
    node = Node((0,), None)
    node.priority, node.used = priority, used
    return node


def may_go(node):
    return node.host_block is None  # the tests use the field as a mark


def test_the_lowest_priority_goes_first_then_the_one_unused_for_longest():
    queue = EvictionQueue(may_go)
    nodes = [leaf(35, 1), leaf(35, 2), leaf(10, 9), leaf(80, 0)]
    for node in reversed(nodes):
        queue.push(node)
    assert [queue.pop() for _ in nodes] == [nodes[2], nodes[0], nodes[1], nodes[3]]
    assert queue.pop() is None


def test_of_equal_ranks_the_one_that_became_a_leaf_first_goes_first():
    queue = EvictionQueue(may_go)
    nodes = [leaf(), leaf(), leaf()]
    for node in nodes:
        queue.push(node)
    assert [queue.pop() for _ in nodes] == nodes


def test_a_node_in_use_is_passed_over_and_one_used_since_has_its_new_place():
    queue = EvictionQueue(may_go)
    old, busy, young = leaf(used=1), leaf(used=2), leaf(used=3)
    for node in (old, busy, young):
        queue.push(node)
    busy.host_block = 1
    old.used = 9
    queue.push(old)
    assert queue.peek() is young
    assert [queue.pop(), queue.pop(), queue.pop()] == [young, old, None]


def test_outdated_entries_do_not_pile_up():
    queue = EvictionQueue(may_go)
    node = leaf()
    for used in range(10_000):
        node.used = used
        queue.push(node)
    assert len(queue._heap) <= 130
    queue.check({node})
    assert queue.pop() is node
    assert queue.pop() is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=200))
def test_everything_comes_out_in_order_of_rank(ranks):
    queue = EvictionQueue(may_go)
    nodes = [leaf(priority, used) for priority, used in ranks]
    for node in nodes:
        queue.push(node)
    queue.check(set(nodes))
    out = [queue.pop() for _ in nodes]
    assert [rank(node) for node in out] == sorted(ranks)
    assert set(out) == set(nodes)


def test_check_notices_a_leaf_that_is_missing():
    with pytest.raises(AssertionError, match="misses a leaf"):
        EvictionQueue(may_go).check({leaf()})

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kv_cache.reuse_tree import Namespace, ReuseTree


def grow(tree, parent, *keys):
    """Add a path of nodes that lie on the device, each in a block of its own."""
    nodes = []
    for key in keys:
        node = tree.add(parent, key)
        node.blocks.append(len(list(tree.nodes())))
        parent.num_device_children += 1
        nodes.append(node)
        parent = node
    tree.check()
    return nodes


def test_a_block_is_found_by_its_tokens_below_those_before_it():
    tree = ReuseTree()
    root = tree.root(Namespace())
    first, second = grow(tree, root, (1, 2), (3, 4))
    assert tree.find_root(Namespace()) is root
    assert root.children[1, 2] is first
    assert first.children[3, 4] is second
    assert (3, 4) not in root.children


def test_other_salts_adapters_and_kinds_of_key_have_trees_of_their_own():
    tree = ReuseTree()
    spaces = [Namespace(), Namespace("a"), Namespace("b"), Namespace(lora_id=1), Namespace(given_keys=True)]
    for space in spaces:
        grow(tree, tree.root(space), (1, 2))
    assert len(tree.roots()) == len(spaces)
    assert len(list(tree.nodes())) == len(spaces)


def test_the_nearest_child_shares_the_longest_beginning():
    tree = ReuseTree()
    root = tree.root(Namespace())
    for key in ((1, 2, 3, 4), (1, 2, 9, 9), (1, 5, 5, 5), (7, 7, 7, 7)):
        grow(tree, root, key)
    assert [(node.key, common) for node, common in [tree.nearest(root, (1, 2, 9, 0))]] == [((1, 2, 9, 9), 3)]
    node, common = tree.nearest(root, (1, 5))
    assert (node.key, common) == ((1, 5, 5, 5), 2)
    assert tree.nearest(root, (7, 7, 7, 7))[1] == 4
    assert tree.nearest(root, (2, 2, 2, 2)) is None


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 4), unique=True), st.lists(st.integers(0, 2), min_size=1, max_size=4))
def test_no_child_shares_more_than_the_nearest(keys, tokens):
    tree, tokens = ReuseTree(), tuple(tokens)
    root = tree.root(Namespace())
    for key in keys:
        grow(tree, root, key)

    def common(key):
        return next((at for at, (a, b) in enumerate(zip(key, tokens, strict=False)) if a != b), len(tokens))

    best = max(map(common, keys), default=0)
    found = tree.nearest(root, tokens)
    assert (0 if found is None else found[1]) == best
    assert found is None or common(found[0].key) == best


def test_removing_a_node_removes_what_lies_below_it_children_first():
    tree = ReuseTree()
    root = tree.root(Namespace())
    a, b, c = grow(tree, root, (1,), (2,), (3,))
    (d,) = grow(tree, a, (4,))
    a.num_device_children -= 1
    gone = tree.remove(b)
    assert gone == [c, b]
    assert list(tree.nodes()) == [a, d]
    assert tree.nearest(a, (2,)) is None
    tree.check()


def test_a_root_goes_with_its_last_child():
    tree = ReuseTree()
    (node,) = grow(tree, tree.root(Namespace("salt")), (1,))
    tree.remove(node)
    assert tree.roots() == ()
    assert tree.find_root(Namespace("salt")) is None


def test_chains_as_long_as_prompts_are_walked_without_recursion():
    tree = ReuseTree()
    parent = tree.root(Namespace())
    for index in range(5000):
        node = tree.add(parent, (index,))
        node.blocks.append(index)
        parent.num_device_children = 1
        parent = node
    tree.check()
    assert len(tree.remove(next(tree.nodes()))) == 5000


def test_given_keys_need_no_order():
    tree = ReuseTree()
    root = tree.root(Namespace(given_keys=True))
    grow(tree, root, "b")
    grow(tree, root, 7)
    assert root.sorted_keys == []
    tree.check()


@pytest.mark.parametrize("harm", ["blocks", "count", "order"])
def test_check_notices(harm):
    tree = ReuseTree()
    root = tree.root(Namespace())
    node, _ = grow(tree, root, (1,), (2,))
    if harm == "blocks":
        node.host_block = 3
    elif harm == "count":
        node.num_device_children = 2
    else:
        root.sorted_keys.append((0,))
    with pytest.raises(AssertionError):
        tree.check()

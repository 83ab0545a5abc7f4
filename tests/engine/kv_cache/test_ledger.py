import pytest

from engine.kv_cache.copies import BlockCopy, CopyKind
from engine.kv_cache.ledger import BlockLedger
from engine.kv_cache.reuse_tree import DEFAULT_PRIORITY, Namespace


def make(num_blocks=4, num_host_blocks=0):
    return BlockLedger(num_blocks=num_blocks, tokens_per_block=2, num_host_blocks=num_host_blocks)


def enter(ledger, *keys, priority=DEFAULT_PRIORITY, copies=None):
    """Allocate a block for each key and commit them as one path; return the table and the nodes."""
    table = ledger.allocate(len(keys), copies=copies)
    node = ledger.tree.root(Namespace())
    nodes = []
    for block, key in zip(table, keys, strict=True):
        node = ledger.commit(block, node, key, priority)
        nodes.append(node)
    return table, nodes


def test_committed_blocks_stay_when_their_table_goes_and_count_as_free():
    ledger = make()
    table, nodes = enter(ledger, (1, 1), (2, 2))
    assert ledger.num_free == 2
    ledger.release(table)
    assert (ledger.num_free, ledger.num_cached, ledger.pool.num_free) == (4, 2, 2)
    assert [node.blocks for node in nodes] == [[block] for block in table]
    ledger.check([])
    assert ledger.acquire(nodes[0]) == table[0]
    assert ledger.num_free == 3
    ledger.check([table[:1]])


def test_a_block_without_a_place_in_the_tree_is_free_at_once():
    ledger = make()
    table = ledger.allocate(3)
    ledger.release(table)
    assert ledger.pool.num_free == 4
    ledger.check([])


def test_leaves_are_evicted_before_their_parents_and_old_ones_before_young_ones():
    ledger = make()
    old, old_nodes = enter(ledger, (1, 1), (2, 2))
    young, young_nodes = enter(ledger, (3, 3))
    ledger.release(old)
    ledger.release(young)
    ledger.allocate(2)
    assert [node.is_alive for node in old_nodes] == [True, False]
    ledger.allocate(1)
    assert not old_nodes[0].is_alive
    assert young_nodes[0].is_alive
    assert ledger.num_evicted == 2


def test_a_low_priority_goes_first_however_young():
    ledger = make()
    precious, _ = enter(ledger, (1, 1), priority=90)
    cheap, (node,) = enter(ledger, (2, 2), priority=10)
    ledger.release(precious)
    ledger.release(cheap)
    ledger.allocate(3)
    assert not node.is_alive


def test_a_used_block_is_never_evicted_nor_are_its_ancestors():
    ledger = make()
    table, nodes = enter(ledger, (1, 1), (2, 2))
    assert ledger.num_free == 2
    ledger.allocate(2)
    with pytest.raises(AssertionError, match="0 to be had"):
        ledger.allocate(1)
    assert all(node.is_alive for node in nodes)
    assert ledger.num_uses(table[0]) == 1


def test_content_computed_side_by_side_lies_in_two_blocks_until_one_table_goes():
    ledger = make()
    first, (node,) = enter(ledger, (1, 1))
    second, (same,) = enter(ledger, (1, 1))
    assert same is node
    assert node.blocks == [*first, *second]
    ledger.check([first, second])
    ledger.release(first)
    assert node.blocks == [*second]
    assert ledger.num_cached == 0
    ledger.release(second)
    assert ledger.num_cached == 1
    ledger.check([])


def test_a_block_computed_again_takes_the_place_of_one_that_nobody_uses():
    ledger = make()
    old, (node,) = enter(ledger, (1, 1))
    ledger.release(old)
    new, _ = enter(ledger, (1, 1))
    assert node.blocks == [*new]
    assert (ledger.num_free, ledger.num_cached) == (3, 0)
    ledger.check([new])


def test_committing_twice_changes_nothing():
    ledger = make()
    table, (node,) = enter(ledger, (1, 1))
    assert ledger.commit(table[0], ledger.tree.root(Namespace()), (1, 1), 35) is node
    assert node.blocks == [*table]
    with pytest.raises(AssertionError, match="different tokens"):
        ledger.commit(table[0], ledger.tree.root(Namespace()), (9, 9), 35)


def test_an_evicted_block_moves_to_the_host_and_comes_back_on_a_match():
    ledger, copies = make(num_blocks=2, num_host_blocks=1), []
    table, (node,) = enter(ledger, (1, 1))
    ledger.release(table)
    other = ledger.allocate(2, copies=copies)
    assert copies == [BlockCopy(CopyKind.OFFLOAD, table[0], 0, 2)]
    assert node.is_alive
    assert (node.blocks, node.host_block) == ([], 0)
    ledger.check([other])
    ledger.release(other)
    copies.clear()
    block = ledger.onboard(node, copies)
    assert copies == [BlockCopy(CopyKind.ONBOARD, 0, block, 2)]
    assert (node.blocks, node.host_block) == ([block], None)
    ledger.check([[block]])


def test_onboarding_may_offload_another_into_another_host_block():
    ledger, copies = make(num_blocks=1, num_host_blocks=2), []
    first, (node,) = enter(ledger, (1, 1))
    ledger.release(first)
    second, (other,) = enter(ledger, (2, 2), copies=copies)
    ledger.release(second)
    copies.clear()
    assert ledger.onboard(node, copies) == 0
    assert copies == [BlockCopy(CopyKind.OFFLOAD, 0, 1, 2), BlockCopy(CopyKind.ONBOARD, 0, 0, 2)]
    assert other.host_block == 1
    ledger.check([[0]])


def test_without_a_list_of_copies_nothing_is_offloaded():
    ledger = make(num_blocks=1, num_host_blocks=1)
    table, (node,) = enter(ledger, (1, 1))
    ledger.release(table)
    ledger.allocate(1)
    assert not node.is_alive
    assert ledger.host.node_at(0) is None


def test_when_the_host_has_no_room_what_lies_below_goes_too():
    ledger, copies = make(num_blocks=2, num_host_blocks=1), []
    table, (parent, child) = enter(ledger, (1, 1), (2, 2), priority=10)
    ledger.release(table)
    ledger.allocate(1, copies=copies)
    assert child.host_block == 0
    child.priority = 90
    ledger.host.note_leaf(child)
    rest = ledger.allocate(1, copies=copies)
    assert not parent.is_alive
    assert not child.is_alive
    assert len(copies) == 1
    ledger.check([(table[1],), rest])


def test_a_beginning_is_copied_from_device_or_host_and_its_source_survives_the_allocation():
    ledger, copies = make(num_blocks=2, num_host_blocks=1), []
    table, (node,) = enter(ledger, (1, 1))
    ledger.release(table)
    block = ledger.copy_beginning(node, 1, after=None, copies=copies)
    assert copies == [BlockCopy(CopyKind.DEVICE, table[0], block, 1)]
    assert ledger.copy_beginning(node, 1, after=None, copies=copies) is None, "only the source itself is left"
    other = ledger.allocate(1, copies=copies)
    ledger.release(other)
    copies.clear()
    block2 = ledger.copy_beginning(node, 1, after=None, copies=copies)
    assert copies == [BlockCopy(CopyKind.ONBOARD, 0, block2, 1)]
    assert node.host_block == 0
    ledger.check([(block,), (block2,)])


def test_content_that_an_undone_step_moved_is_forgotten_with_what_lies_below():
    ledger, copies = make(num_blocks=3, num_host_blocks=3), []
    table, (parent, child) = enter(ledger, (1, 1), (2, 2))
    ledger.release(table)
    taken = ledger.allocate(2, copies=copies)
    assert [copy.kind for copy in copies] == [CopyKind.OFFLOAD]
    ledger.release(taken)
    ledger.distrust(copies)
    assert parent.is_alive
    assert not child.is_alive
    taken = ledger.allocate(3, copies=copies)
    ledger.release(taken)
    copies.clear()
    block = ledger.onboard(parent, copies)
    ledger.release((block,))
    ledger.distrust(copies)
    assert not parent.is_alive
    assert ledger.num_free == 3
    ledger.check([])


def test_a_block_about_to_be_written_again_leaves_the_tree_and_takes_what_nobody_uses_along():
    ledger = make()
    table, (parent, child) = enter(ledger, (1, 1), (2, 2))
    ledger.release(table[1:])
    ledger.make_private(table[0])
    assert not parent.is_alive
    assert not child.is_alive
    assert ledger.node_of(table[0]) is None
    ledger.check([table[:1]])
    ledger.share(table[0])
    with pytest.raises(AssertionError, match="2 tables"):
        ledger.make_private(table[0])


def test_one_of_two_copies_leaves_without_the_other():
    ledger = make()
    first, (node,) = enter(ledger, (1, 1))
    second, _ = enter(ledger, (1, 1))
    ledger.make_private(first[0])
    assert node.blocks == [*second]
    ledger.check([first, second])


@pytest.mark.parametrize("harm", ["count", "cached", "leaf"])
def test_check_notices(harm):
    ledger = make()
    table, (node,) = enter(ledger, (1, 1))
    if harm == "count":
        ledger.share(table[0])
    ledger.release(table)
    if harm == "cached":
        ledger.num_cached = 0
    elif harm == "leaf":
        node.used += 1
    with pytest.raises(AssertionError):
        ledger.check([])

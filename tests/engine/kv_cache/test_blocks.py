import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from engine.errors import OutOfBlocksError
from engine.kv_cache.blocks import BlockPool


def test_a_new_pool_hands_out_the_lowest_blocks_in_one_run():
    pool = BlockPool(8)
    assert pool.allocate(3) == (0, 1, 2)
    assert pool.num_free == 5
    pool.check()


def test_a_second_sequence_leaves_the_first_room_to_grow():
    pool = BlockPool(16)
    first = pool.allocate(2)
    second = pool.allocate(2)
    assert second == (8, 9)
    assert pool.allocate(3, after=first[-1]) == (2, 3, 4)
    assert pool.allocate(3, after=second[-1]) == (10, 11, 12)
    pool.check()


def test_growth_goes_elsewhere_only_for_what_the_next_blocks_cannot_give():
    pool = BlockPool(8)
    pool.allocate(8)
    pool.free((1, 2, 5, 6, 7))
    assert pool.allocate(4, after=0) == (1, 2, 5, 6)
    pool.check()


def test_growth_past_the_last_block_of_the_pool_goes_elsewhere():
    pool = BlockPool(4)
    pool.allocate(4)
    pool.free((0, 1))
    assert pool.allocate(1, after=3) == (0,)
    pool.check()


def test_a_run_is_preferred_to_pieces_whatever_was_freed_first():
    pool = BlockPool(12)
    pool.allocate(12)
    pool.free((0,))
    pool.free((10,))
    pool.free((4, 5, 6))
    assert pool.allocate(3) == (4, 5, 6)
    pool.check()


def test_without_a_long_run_the_longest_pieces_are_joined_in_ascending_order():
    pool = BlockPool(12)
    pool.allocate(12)
    pool.free((1, 4, 5, 6, 9, 10))
    assert pool.allocate(5) == (4, 5, 6, 9, 10)
    assert pool.num_free == 1
    pool.check()


def test_pieces_are_ascending_even_when_the_longest_lies_last():
    pool = BlockPool(12)
    pool.allocate(12)
    pool.free((1, 4, 7, 8, 9))
    assert pool.allocate(4) == (1, 7, 8, 9)
    pool.check()


def test_blocks_freed_in_any_order_melt_into_one_run():
    pool = BlockPool(6)
    taken = pool.allocate(6)
    for block in (4, 0, 2, 5, 1, 3):
        pool.free((block,))
        pool.check()
    assert pool.allocate(6) == taken


def test_allocating_nothing_takes_nothing():
    pool = BlockPool(2)
    assert pool.allocate(0) == ()
    assert pool.num_free == 2
    pool.check()


def test_an_empty_pool_says_what_is_missing_and_keeps_what_it_has():
    pool = BlockPool(4)
    pool.allocate(3)
    with pytest.raises(OutOfBlocksError) as caught:
        pool.allocate(2)
    assert str(caught.value) == (
        "2 KV blocks are needed and 1 of 4 are free; wait for a request to finish, or raise KVCacheConfig.num_blocks"
    )
    assert pool.num_free == 1
    pool.check()


def test_a_pool_without_blocks_refuses_and_stays_consistent():
    pool = BlockPool(0)
    pool.check()
    with pytest.raises(OutOfBlocksError):
        pool.allocate(1)


@pytest.mark.parametrize("blocks", [(2,), (0, 0), (1, 2), (-1,), (4,)])
def test_freeing_what_is_free_or_foreign_is_caught(blocks):
    pool = BlockPool(4)
    pool.allocate(2)
    with pytest.raises(AssertionError):
        pool.free(blocks)


def test_check_notices_a_lost_block():
    pool = BlockPool(4)
    pool._is_free[2] = 0
    with pytest.raises(AssertionError):
        pool.check()


def test_a_long_life_keeps_the_heap_of_runs_short():
    pool = BlockPool(64)
    pool.allocate(64)
    pool.free(range(0, 64, 2))
    for _ in range(2_000):
        pool.free(pool.allocate(1))
    assert len(pool._by_length) <= 2 * len(pool._run_end) + 65
    pool.check()


@settings(deadline=None)
@given(st.sets(st.integers(0, 30)), st.integers(0, 31), st.one_of(st.none(), st.integers(0, 30)))
def test_the_choice_depends_on_the_free_set_alone_and_keeps_blocks_together(free, count, after):
    free = free - {after}
    pools = []
    for order in (sorted(free), sorted(free, key=lambda block: block * 17 % 31)):
        pool = BlockPool(31)
        pool.allocate(31)
        for block in order:
            pool.free((block,))
        pools.append(pool)
    if count > len(free):
        for pool in pools:
            with pytest.raises(OutOfBlocksError):
                pool.allocate(count, after=after)
            assert pool.free_ids() == free
        return
    first, second = (pool.allocate(count, after=after) for pool in pools)
    assert first == second
    assert len(first) == count
    assert set(first) <= free
    assert pools[0].free_ids() == free - set(first)
    longest = max((_length_from(free, block) for block in free), default=0)
    if after is None and count <= longest:
        assert first == tuple(range(first[0], first[0] + count)) if count else first == ()
    if after is not None and count and after + 1 in free:
        follows = min(count, _length_from(free, after + 1))
        assert first[:follows] == tuple(range(after + 1, after + 1 + follows))
    pools[0].check()


def _length_from(free, block):
    length = 0
    while block + length in free:
        length += 1
    return length


class PoolMachine(RuleBasedStateMachine):
    """Any sequence of allocations and frees conserves the blocks."""

    pieces = Bundle("pieces")

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(24)
        self.owned: set[int] = set()

    @rule(target=pieces, count=st.integers(0, 9), after=st.one_of(st.none(), st.integers(0, 23)))
    def allocate(self, count, after):
        if count > 24 - len(self.owned):
            with pytest.raises(OutOfBlocksError):
                self.pool.allocate(count, after=after)
            return ()
        blocks = self.pool.allocate(count, after=after)
        assert len(set(blocks)) == count
        assert not self.owned & set(blocks)
        self.owned |= set(blocks)
        return blocks

    @rule(blocks=consumes(pieces), reverse=st.booleans())
    def free(self, blocks, reverse):
        self.pool.free(blocks[::-1] if reverse else blocks)
        self.owned -= set(blocks)

    @invariant()
    def every_block_is_free_or_owned(self):
        self.pool.check()
        assert self.pool.free_ids() == frozenset(range(24)) - self.owned
        assert self.pool.num_free == 24 - len(self.owned)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)

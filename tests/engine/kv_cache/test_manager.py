import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.config import SamplingParams
from engine.errors import OutOfBlocksError
from engine.kv_cache.copies import BlockCopy, CopyKind
from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest, RequestSpec


def make(num_blocks=8, tokens_per_block=4, max_seq_len=64, host_blocks=0):
    return KVCacheManager(
        num_blocks=num_blocks, tokens_per_block=tokens_per_block, max_seq_len=max_seq_len, host_blocks=host_blocks
    )


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_started_block_counts_whole(tokens, blocks):
    assert make().blocks_for(tokens) == blocks


def test_sizes_are_those_it_was_made_with():
    kv = make(num_blocks=9, tokens_per_block=4, max_seq_len=30)
    assert (kv.num_blocks, kv.tokens_per_block, kv.max_seq_len, kv.max_blocks_per_seq) == (9, 4, 30, 8)
    assert kv.num_free_blocks == 9
    kv.check()


def test_a_request_that_grows_inside_its_block_gets_no_new_one_and_keeps_its_table():
    kv = make()
    assert kv.reserve(5, 5) == (0, 1)
    table = kv.block_table(5)
    for length in (5, 6, 7, 8):
        assert kv.reserve(5, length) == ()
        assert kv.block_table(5) is table
    assert kv.reserve(5, 9) == (2,)
    assert kv.block_table(5) == (0, 1, 2)
    kv.check()


def test_extra_tokens_are_reserved_beyond_the_length():
    kv = make()
    assert len(kv.reserve(1, 4, extra=1)) == 2
    assert kv.reserve(1, 5, extra=3) == ()
    kv.check()


def test_a_shorter_length_takes_nothing_away():
    kv = make()
    kv.reserve(1, 12)
    assert kv.reserve(1, 3) == ()
    assert kv.num_reserved_blocks(1) == 3
    kv.check()


def test_a_request_without_blocks_is_unknown_and_that_is_fine():
    kv = make()
    assert kv.reserve(1, 0) == ()
    kv.free(1)
    kv.free(99)
    kv.unreserve(99, ())
    assert kv.rewind(99, 3) == 0
    assert kv.block_table(99) == ()
    assert kv.num_reserved_blocks(99) == 0
    assert kv.live_request_ids == frozenset()
    kv.check()
    assert kv.reserve(99, 1) == (0,)
    assert kv.block_table(99) == (0,)


def test_freeing_gives_back_all_blocks_and_forgets_the_table():
    kv = make()
    kv.reserve(1, 10)
    kv.reserve(2, 4)
    kv.free(1)
    assert kv.live_request_ids == {2}
    assert kv.num_free_blocks == 7
    assert kv.block_table(1) == ()
    kv.check()


def test_a_rewind_keeps_the_blocks_that_the_kept_tokens_need():
    kv = make()
    kv.reserve(1, 16)
    table = kv.block_table(1)
    assert kv.rewind(1, 13) == 13
    assert kv.block_table(1) is table
    assert kv.rewind(1, 8) == 8
    assert kv.block_table(1) == table[:2]
    assert kv.num_free_blocks == 6
    assert kv.rewind(1, 0) == 0
    assert kv.live_request_ids == frozenset()
    kv.check()


def test_a_full_pool_names_the_request_the_need_and_the_rest():
    kv = make()
    kv.reserve(1, 20)
    kv.reserve(2, 4)
    before = kv.block_table(2)
    with pytest.raises(OutOfBlocksError) as caught:
        kv.reserve(2, 17)
    assert str(caught.value) == (
        "request 2 needs 4 more KV blocks to hold 17 tokens, and 2 of 8 are free; "
        "wait for a request to finish, or raise KVCacheConfig.num_blocks"
    )
    assert kv.block_table(2) is before
    assert kv.num_free_blocks == 2
    kv.check()


def test_a_sequence_longer_than_its_table_is_refused_even_if_blocks_are_free():
    kv = make(num_blocks=50, max_seq_len=16)
    with pytest.raises(OutOfBlocksError) as caught:
        kv.reserve(3, 16, extra=1)
    assert str(caught.value) == (
        "request 3 needs 5 KV blocks for 17 tokens, and one sequence holds at most 4 (max_seq_len=16); "
        "raise EngineConfig.max_seq_len"
    )
    assert kv.live_request_ids == frozenset()
    kv.check()


def test_only_the_newest_reservation_can_be_undone():
    kv = make()
    first = kv.reserve(1, 4)
    kv.reserve(1, 8)
    with pytest.raises(AssertionError, match="did not reserve"):
        kv.unreserve(1, first)


def test_check_notices_a_block_with_two_owners():
    kv = make()
    kv.reserve(1, 4)
    kv.reserve(2, 4)
    kv._blocks[2] = list(kv._blocks[1])
    with pytest.raises(AssertionError):
        kv.check()


def test_check_notices_a_stale_table():
    kv = make()
    kv.reserve(1, 4)
    kv.block_table(1)
    kv._tables[1] = (7,)
    with pytest.raises(AssertionError, match="stale"):
        kv.check()


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 24)), max_size=8),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 24)), max_size=5),
)
def test_undoing_reservations_in_reverse_restores_everything(before, step):
    kv = make(num_blocks=30, max_seq_len=24)
    for request_id, length in before:
        kv.reserve(request_id, length)
    tables = {request_id: kv.block_table(request_id) for request_id in range(5)}
    free, live = kv.free_block_ids(), kv.live_request_ids
    done = [(request_id, kv.reserve(request_id, length)) for request_id, length in step]
    for request_id, added in reversed(done):
        kv.unreserve(request_id, added)
        kv.check()
    assert {request_id: kv.block_table(request_id) for request_id in range(5)} == tables
    assert (kv.free_block_ids(), kv.live_request_ids) == (free, live)
    again = [(request_id, kv.reserve(request_id, length)) for request_id, length in step]
    assert again == done


class ManagerMachine(RuleBasedStateMachine):
    """Any life of a few requests: lengths are covered, blocks conserved, tables only grow at the end."""

    ids = st.integers(0, 3)
    lengths = st.integers(0, 40)

    def __init__(self):
        super().__init__()
        self.kv = make(num_blocks=12, max_seq_len=40)
        self.num_blocks = dict.fromkeys(range(4), 0)
        self.newest: tuple[int, tuple[int, ...]] | None = None

    @rule(request_id=ids, length=lengths, extra=st.integers(0, 3))
    def reserve(self, request_id, length, extra):
        table, needed = self.kv.block_table(request_id), self.kv.blocks_for(length + extra)
        more = max(0, needed - len(table))
        if more and (more > self.kv.num_free_blocks or needed > self.kv.max_blocks_per_seq):
            with pytest.raises(OutOfBlocksError):
                self.kv.reserve(request_id, length, extra)
            return
        added = self.kv.reserve(request_id, length, extra)
        assert len(added) == more
        assert self.kv.block_table(request_id) == table + added
        self.num_blocks[request_id] += more
        self.newest = (request_id, added)

    @precondition(lambda self: self.newest is not None)
    @rule()
    def unreserve(self):
        request_id, added = self.newest
        self.kv.unreserve(request_id, added)
        self.num_blocks[request_id] -= len(added)
        self.newest = None

    @rule(request_id=ids, length=lengths)
    def rewind(self, request_id, length):
        kept = min(self.num_blocks[request_id], self.kv.blocks_for(length))
        table = self.kv.block_table(request_id)
        assert self.kv.rewind(request_id, length) == min(length, 4 * self.num_blocks[request_id])
        assert self.kv.block_table(request_id) == table[:kept]
        self.num_blocks[request_id] = kept
        self.newest = None

    @rule(request_id=ids)
    def free(self, request_id):
        self.kv.free(request_id)
        self.num_blocks[request_id] = 0
        self.newest = None

    @invariant()
    def blocks_are_conserved(self):
        self.kv.check()
        assert {i: self.kv.num_reserved_blocks(i) for i in range(4)} == self.num_blocks
        assert self.kv.num_free_blocks == 12 - sum(self.num_blocks.values())
        assert self.kv.live_request_ids == {i for i, count in self.num_blocks.items() if count}


TestManagerMachine = ManagerMachine.TestCase
TestManagerMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_the_changes_since_a_version_are_the_requests_whose_table_changed():
    manager = KVCacheManager(num_blocks=8, tokens_per_block=4, max_seq_len=32)
    version = manager.table_version
    assert manager.changed_since(version) == frozenset()
    manager.reserve(1, 4)
    manager.reserve(2, 4)
    assert manager.changed_since(version) == {1, 2}
    version = manager.table_version
    manager.reserve(1, 4)
    assert manager.changed_since(version) == frozenset(), "nothing was added"
    added = manager.reserve(1, 5)
    manager.unreserve(1, added)
    manager.free(2)
    manager.free(3)
    assert manager.changed_since(version) == {1, 2}


def test_changes_too_long_ago_are_not_known():
    manager = KVCacheManager(num_blocks=8, tokens_per_block=4, max_seq_len=32)
    for _ in range(3000):
        manager.reserve(1, 4)
        manager.free(1)
    assert manager.changed_since(0) is None
    assert manager.changed_since(manager.table_version - 4096) == {1}


def test_after_a_rewind_nobody_takes_the_new_table_for_a_continuation_of_the_old_one():
    kv = make()
    kv.reserve(1, 12)
    version = kv.table_version
    kv.rewind(1, 5)
    kv.reserve(1, 12)
    assert kv.changed_since(version) is None
    assert kv.changed_since(kv.table_version) == frozenset()
    kv.rewind(1, 12)
    assert kv.changed_since(kv.table_version - 1) == {1}, "a rewind that took nothing is no change"


def test_a_fork_shares_full_blocks_and_copies_the_one_that_is_begun():
    kv = make()
    kv.reserve(1, 10)
    assert kv.fork(1, 2, 10) == (BlockCopy(CopyKind.DEVICE, kv.block_table(1)[2], kv.block_table(2)[2], 2),)
    assert kv.block_table(2)[:2] == kv.block_table(1)[:2]
    assert kv.num_free_blocks == 4
    kv.free(1)
    assert kv.num_free_blocks == 5
    assert kv.fork(2, 3, 8) == ()
    assert kv.fork(2, 4, 0) == ()
    assert kv.live_request_ids == {2, 3}
    kv.check()


def test_a_fork_without_a_block_for_its_copy_names_the_parent_and_changes_nothing():
    kv = make(num_blocks=3)
    kv.reserve(1, 10)
    with pytest.raises(OutOfBlocksError) as caught:
        kv.fork(1, 2, 10)
    assert str(caught.value) == (
        "request 2 needs 1 more KV blocks to copy the block that request 1 has begun, and 0 of 3 are free; "
        "wait for a request to finish, or raise KVCacheConfig.num_blocks"
    )
    assert kv.live_request_ids == {1}
    kv.check()


def test_a_reservation_evicts_what_is_cached_and_says_what_goes_to_the_host():
    kv = make(num_blocks=2, host_blocks=2)
    request = LlmRequest(RequestSpec(1, tuple(range(8)), SamplingParams()))
    kv.claim([(request, 8)], [])
    kv.reserve(1, 8)
    kv.commit(1, 8)
    kv.free(1)
    assert (kv.num_free_blocks, kv.num_cached_blocks, len(kv.free_block_ids())) == (2, 2, 0)
    copies = []
    assert kv.reserve(2, 4, copies=copies) == (1,), "the leaf goes first"
    assert copies == [BlockCopy(CopyKind.OFFLOAD, 1, 0, 4)]
    kv.check()


def test_tokens_that_the_host_does_not_know_cannot_be_committed():
    kv = make()
    request = LlmRequest(RequestSpec(1, (1, 2, 3), SamplingParams()))
    kv.claim([(request, 3)], [])
    kv.reserve(1, 4)
    with pytest.raises(AssertionError, match="does not know yet"):
        kv.commit(1, 4)


def test_blocks_of_dummies_never_enter_the_tree():
    kv = make()
    dummy = LlmRequest(RequestSpec(9, (1, 1, 1, 1), SamplingParams(), is_dummy=True))
    assert kv.claim([(dummy, 4)], []) == []
    kv.reserve(9, 4)
    kv.commit(9, 4)
    kv.free(9)
    assert kv.num_cached_blocks == 0
    assert kv.reusable_tokens(dummy) == kv.num_shared_blocks(dummy) == 0

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kv_cache.manager import KVCacheManager
from engine.reasons import DeferralReason
from engine.scheduled import Deferral
from engine.scheduler.deferrals import Lack, QueueDeferrals, with_more, without
from tests.engine.live_requests import waiting

BEHIND = DeferralReason.BEHIND_BLOCKED_REQUEST


def queue(count=4, *, start=0, needed=None, head=(), tail=()):
    kv = KVCacheManager(num_blocks=20, tokens_per_block=4, max_seq_len=1024)
    requests = tuple(waiting(i, prompt_len=4 + 4 * i, max_tokens=1) for i in range(count))
    return QueueDeferrals(requests, start, Lack(BEHIND, needed, 3), kv, head=head, tail=tail)


def record(request_id):
    return Deferral(request_id, DeferralReason.NO_FREE_BLOCKS, 9, 2)


def test_each_of_the_queue_has_its_own_need_or_the_one_of_all():
    assert queue(3) == (Deferral(0, BEHIND, 1, 3), Deferral(1, BEHIND, 2, 3), Deferral(2, BEHIND, 3, 3))
    assert list(queue(3, start=1, needed=7)) == [Deferral(1, BEHIND, 7, 3), Deferral(2, BEHIND, 7, 3)]


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3), st.integers(0, 3), st.integers(-9, 9))
def test_it_is_the_tuple_of_its_records(count, start, num_head, num_tail, index):
    start = min(start, count)
    head, tail = tuple(map(record, range(20, 20 + num_head))), tuple(map(record, range(30, 30 + num_tail)))
    lazy = queue(count, start=start, head=head, tail=tail)
    plain = (*head, *[Deferral(i, BEHIND, 1 + i, 3) for i in range(start, count)], *tail)
    assert len(lazy) == len(plain)
    assert lazy == plain
    assert plain == tuple(lazy)
    assert hash(lazy) == hash(plain)
    assert lazy[index:] == plain[index:]
    if -len(plain) <= index < len(plain):
        assert lazy[index] == plain[index]
    else:
        with pytest.raises(IndexError, match=f"deferral {index} of {len(plain)}"):
            lazy[index]


def test_its_records_are_made_once():
    lazy = queue()
    assert all(first is second for first, second in zip(lazy, lazy, strict=True))


def test_it_shows_its_beginning():
    assert repr(queue(0)) == "QueueDeferrals(0: )"
    assert repr(queue(9, needed=1)).endswith(
        "Deferral(request_id=1, reason=<" + repr(BEHIND)[1:] + ", needed=1, available=3), ...)"
    )


def test_more_records_go_behind_and_nothing_added_changes_nothing():
    lazy, plain, more = queue(), (record(8),), (record(9),)
    assert with_more(lazy, ()) is lazy
    assert with_more(list(plain), ()) == plain, "a record would hold a list"
    assert with_more(lazy, more) == (*lazy, *more)
    assert with_more(with_more(lazy, more), plain) == (*lazy, *more, *plain)
    assert isinstance(with_more(lazy, more), QueueDeferrals)
    assert with_more(plain, more) == (*plain, *more)


def test_records_of_requests_that_run_after_all_are_dropped():
    lazy = queue(head=(record(20), record(21)), tail=(record(30), record(31)))
    dropped = without(lazy, frozenset([20, 31]))
    assert [deferral.request_id for deferral in dropped] == [21, 0, 1, 2, 3, 30]
    assert without((record(1), record(2)), frozenset([1])) == (record(2),)

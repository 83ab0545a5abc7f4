from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kv_cache.manager import KVCacheManager
from engine.scheduler.block_needs import blocks_to_completion
from engine.scheduler.promises import Promises
from tests.engine.live_requests import running


def counted(requests, kv):
    return sum(blocks_to_completion(request, kv) for request in requests)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40)), max_size=40), st.integers(1, 3))
def test_the_sum_follows_every_reservation_release_and_newcomer(changes, pause):
    kv, promises = KVCacheManager(num_blocks=400, tokens_per_block=4, max_seq_len=1024), Promises()
    requests = [running(i, max_tokens=5 + 3 * i) for i in range(3)]
    for at, (request_id, num_tokens) in enumerate(changes):
        if request_id == 4:
            requests = [*requests[1:], running(100 + at)]
        elif num_tokens:
            kv.reserve(request_id, num_tokens)
        else:
            kv.free(request_id)
        if at % pause == 0:
            assert promises.total(tuple(requests), kv) == counted(requests, kv)
            promises.check()


def test_only_changed_tables_are_looked_at():
    kv, promises = KVCacheManager(num_blocks=400, tokens_per_block=4, max_seq_len=1024), Promises()
    requests = tuple(running(i, max_tokens=30) for i in range(50))
    promises.total(requests, kv)
    asked = []
    real = kv.num_reserved_blocks
    kv.num_reserved_blocks = lambda request_id: asked.append(request_id) or real(request_id)
    promises.total(requests, kv)
    assert asked == []
    kv.reserve(7, 8)
    kv.reserve(99, 8)  # of somebody who is not running
    assert promises.total(requests, kv) == counted(requests, kv)
    assert asked[0] == 7
    assert len(asked) == 1 + len(requests)


def test_another_manager_is_counted_anew():
    promises, requests = Promises(), (running(1),)
    first = KVCacheManager(num_blocks=40, tokens_per_block=4, max_seq_len=1024)
    second = KVCacheManager(num_blocks=40, tokens_per_block=4, max_seq_len=1024)
    second.reserve(1, 20)
    assert promises.total(requests, first) == counted(requests, first)
    assert promises.total(requests, second) == counted(requests, second) == counted(requests, first) - 5

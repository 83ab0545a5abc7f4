import dataclasses

import pytest

from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest
from engine.reasons import DeferralReason
from engine.scheduled import Deferral
from engine.scheduler.capacity import CapacityScheduler
from engine.scheduler.shared_prefix import awaited_prefix
from tests.engine.live_requests import running, waiting


def pool(*, reuse=True):
    return KVCacheManager(num_blocks=100, tokens_per_block=4, max_seq_len=1024, enable_block_reuse=reuse)


def half_done(request_id=1, *, kv=None, prompt_len=20, done=8):
    """A request that has computed some of its prompt, which is in the cache."""
    request = waiting(request_id, prompt_len=prompt_len, position=done)
    if kv is not None:
        kv.claim([(request, done)], [])
        kv.reserve(request_id, done)
        kv.commit(request_id, done)
    return request


def like(request, **changes):
    return LlmRequest(dataclasses.replace(request.spec, **changes))


def test_the_block_behind_what_is_cached_is_awaited():
    kv = pool()
    first = half_done(kv=kv)
    assert awaited_prefix(waiting(2), [first], kv) == (12, 8)
    assert awaited_prefix(waiting(2), [half_done(3)], pool()) == (4, 0)


@pytest.mark.parametrize("prompt_len", [3, 4, 12])
def test_a_prompt_that_ends_there_awaits_nothing(prompt_len):
    kv = pool()
    first = half_done(kv=kv, done=8 if prompt_len > 4 else 0) if prompt_len > 4 else half_done()
    assert awaited_prefix(waiting(2, prompt_len=prompt_len), [first], kv) is None


def test_only_prompts_that_reach_so_far_and_begin_alike_are_awaited():
    kv, other = pool(), half_done(3, prompt_len=40)
    assert awaited_prefix(waiting(2), [half_done(1, prompt_len=3, done=2)], kv) is None
    assert awaited_prefix(like(waiting(2), prompt_token_ids=(9,) * 20), [other], kv) is None
    assert awaited_prefix(like(waiting(2), cache_salt="mine"), [other], kv) is None
    assert awaited_prefix(like(waiting(2), block_keys=("a", "b")), [other], kv) is None
    assert awaited_prefix(waiting(2), [], kv) is None


def test_given_keys_are_compared_instead_of_tokens():
    kv, other = pool(), like(half_done(3), block_keys=("a", "b"))
    assert awaited_prefix(like(waiting(2), block_keys=("a", "c"), prompt_token_ids=range(50, 70)), [other], kv) == (
        4,
        0,
    )
    assert awaited_prefix(like(waiting(2), block_keys=("b", "b")), [other], kv) is None
    assert awaited_prefix(like(waiting(2), block_keys=()), [other], kv) is None


def test_without_reuse_nothing_is_awaited():
    assert awaited_prefix(waiting(2), [half_done()], pool(reuse=False)) is None


@pytest.mark.parametrize("policy", ["guaranteed_no_evict", "max_utilization"])
def test_nobody_overtakes_who_awaits_a_prefix(policy):
    kv = pool()
    first, second, third = half_done(kv=kv), waiting(2), like(waiting(3), prompt_token_ids=(9,) * 6)
    decision = CapacityScheduler(policy).schedule((first,), (second, third), kv, max_batch_size=8)
    assert decision.fitting == (first,)
    assert decision.deferrals[0] == Deferral(2, DeferralReason.AWAITS_SHARED_PREFIX, needed=12, available=8)
    assert decision.deferrals[1].reason is DeferralReason.BEHIND_BLOCKED_REQUEST


def test_a_prompt_that_is_done_holds_nobody_back():
    kv = pool()
    kv.reserve(1, 20)
    decision = CapacityScheduler().schedule((running(1),), (waiting(2),), kv, max_batch_size=8)
    assert [request.request_id for request in decision.fitting] == [1, 2]

"""Newcomers through the manager: what a prompt gets from the tree, and what it must leave to the others."""

import pytest

from engine.config import SamplingParams
from engine.kv_cache.copies import BlockCopy, CopyKind
from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest, RequestSpec


def make(num_blocks=8, **options):
    return KVCacheManager(num_blocks=num_blocks, tokens_per_block=2, max_seq_len=64, **options)


def request(request_id, tokens):
    return LlmRequest(RequestSpec(request_id, tuple(tokens), SamplingParams(max_tokens=8)))


def serve(kv, request_id, tokens, *, finish=True, copies=None):
    """Compute a whole prompt and commit it."""
    copies = [] if copies is None else copies
    kv.claim([(request(request_id, tokens), len(tokens))], copies)
    kv.reserve(request_id, len(tokens), copies=copies)
    kv.commit(request_id, len(tokens))
    if finish:
        kv.free(request_id)
    kv.check()
    return kv.block_table(request_id)


def claim(kv, *wanted, num_promised=0):
    copies = []
    found = kv.claim(list(wanted), copies, num_promised=num_promised)
    kv.check()
    return dict(found), copies


def test_a_prompt_gets_its_blocks_from_a_request_that_is_gone():
    kv = make()
    serve(kv, 1, [1, 2, 3, 4, 5])
    found, copies = claim(kv, (request(2, [1, 2, 3, 4, 9, 9]), 2))
    assert found == {2: 4}
    assert copies == []
    assert kv.num_reserved_tokens(2) == 4
    assert kv.num_free_blocks == 6


def test_two_live_requests_share_the_blocks_of_the_same_beginning():
    kv = make()
    table = serve(kv, 1, [1, 2, 3, 4, 5], finish=False)
    found, _ = claim(kv, (request(2, [1, 2, 3, 4, 6]), 1))
    assert found == {2: 4}
    assert kv.block_table(2) == table[:2]
    assert kv.num_free_blocks == 5
    kv.free(1)
    assert kv.num_free_blocks == 6
    kv.check()


def test_the_beginning_of_a_block_comes_as_a_copy():
    kv = make()
    serve(kv, 1, [1, 2, 3, 4])
    found, copies = claim(kv, (request(2, [1, 2, 3, 9]), 1))
    assert found == {2: 3}
    shared, begun = kv.block_table(2)
    assert copies == [BlockCopy(CopyKind.DEVICE, shared + 1, begun, 1)]


def test_a_prompt_that_is_wholly_there_still_computes_its_last_token():
    kv = make()
    serve(kv, 1, [1, 2, 3, 4])
    found, copies = claim(kv, (request(2, [1, 2, 3, 4]), 1))
    assert found == {2: 3}
    assert [copy.num_tokens for copy in copies] == [1]
    assert claim(kv, (request(3, [1]), 1)) == ({}, [])


@pytest.mark.parametrize("option", ["enable_block_reuse", "enable_partial_reuse"])
def test_what_is_switched_off_does_not_happen(option):
    kv = make(**{option: False})
    serve(kv, 1, [1, 2, 3, 4])
    found, copies = claim(kv, (request(2, [1, 2, 3, 4]), 1))
    assert found == ({} if option == "enable_block_reuse" else {2: 2})
    assert copies == []
    assert kv.num_cached_blocks == (0 if option == "enable_block_reuse" else 1)


def test_a_newcomer_in_the_same_step_shares_what_another_took():
    kv = make(num_blocks=4)
    serve(kv, 1, [1, 2, 3, 4, 5, 6])
    found, _ = claim(kv, (request(2, [1, 2, 3, 4, 8]), 1), (request(3, [1, 2, 3, 4, 9]), 1))
    assert found == {2: 4, 3: 4}
    assert kv.block_table(2) == kv.block_table(3)
    assert kv.num_free_blocks == 2, "one block for the row of each"


def test_cached_blocks_of_another_newcomer_are_not_evicted_for_a_copy():
    kv = make(num_blocks=5)
    serve(kv, 1, [1, 1, 2, 2])
    serve(kv, 2, [3, 3, 4, 4])
    wanted = (request(3, [3, 3, 4, 9]), 1), (request(4, [1, 1, 2, 2, 5]), 1)
    found, copies = claim(kv, *wanted)
    assert found == {3: 3, 4: 4}
    assert len(copies) == 1
    assert kv.num_free_blocks == 1


def test_a_credit_leaves_the_blocks_that_the_rest_of_the_step_needs():
    kv = make(num_blocks=4)
    serve(kv, 1, [1, 2, 3, 4, 5, 6, 7, 8])
    newcomer = request(2, [1, 2, 3, 4, 5, 6, 7, 9, 9, 9, 9, 9])
    for promised, tokens in ((3, 0), (2, 2), (1, 4), (0, 6)):
        found, _ = claim(kv, (newcomer, 2), num_promised=promised)
        assert found.get(2, 0) == tokens
        assert kv.num_free_blocks >= promised + 1
        kv.free(2)


def test_sharing_with_live_requests_is_free_even_if_every_block_is_promised():
    kv = make(num_blocks=4)
    serve(kv, 1, [1, 2, 3, 4, 5], finish=False)
    found, _ = claim(kv, (request(2, [1, 2, 3, 4, 6]), 1), num_promised=1)
    assert found == {2: 4}


def test_offloaded_blocks_come_back_in_order_and_count():
    kv = make(num_blocks=4, host_blocks=4)
    serve(kv, 1, [1, 2, 3, 4, 5, 6])
    copies = []
    serve(kv, 2, [9, 9, 8, 8, 7, 7, 6, 6], copies=copies)
    assert [copy.kind for copy in copies] == [CopyKind.OFFLOAD] * 3
    found, copies = claim(kv, (request(3, [1, 2, 3, 4, 5, 9]), 1))
    assert found == {3: 5}
    onboarded = [copy for copy in copies if copy.kind is CopyKind.ONBOARD]
    assert [copy.num_tokens for copy in onboarded] == [2, 2, 1]
    assert [copy.target for copy in onboarded] == list(kv.block_table(3))


def test_the_estimate_is_what_a_claim_credits_and_takes_nothing():
    kv = make(num_blocks=4, host_blocks=4)
    serve(kv, 1, [1, 2, 3, 4, 5, 6])
    serve(kv, 2, [9, 9, 8, 8, 7, 7, 6, 6])
    newcomer = request(3, [1, 2, 3, 4, 5, 9])
    assert kv.reusable_tokens(newcomer) == kv.reusable_tokens(newcomer) == 5
    assert kv.num_free_blocks == 4
    assert claim(kv, (newcomer, 1))[0] == {3: 5}
    assert kv.reusable_tokens(newcomer) == 0, "it owns blocks now"


def test_only_blocks_of_live_requests_are_shared_for_nothing():
    kv = make()
    serve(kv, 1, [1, 2, 3, 4, 5, 6, 7])
    newcomer = request(3, [1, 2, 3, 4, 5, 6, 9])
    assert (kv.reusable_tokens(newcomer), kv.num_shared_blocks(newcomer)) == (6, 0)
    claim(kv, (request(2, [1, 2, 3, 4, 8]), 1))
    assert (kv.reusable_tokens(newcomer), kv.num_shared_blocks(newcomer)) == (6, 2)


def test_a_long_prompt_with_given_keys_is_claimed_without_being_read():
    class Unreadable:
        def __len__(self):
            return 124_000

        def __getitem__(self, item):
            pytest.fail("the prompt was read")

    kv = KVCacheManager(num_blocks=600, tokens_per_block=512, max_seq_len=131_072)
    keys = tuple(range(243))
    for request_id, tokens in ((1, 0), (2, 242 * 512)):
        spec = RequestSpec(request_id, Unreadable(), SamplingParams(), block_keys=keys)
        found, _ = claim(kv, (LlmRequest(spec), 8192))
        assert found.get(request_id, 0) == tokens
        kv.reserve(request_id, 124_000)
        kv.commit(request_id, 124_000)
        kv.free(request_id)
        kv.check()

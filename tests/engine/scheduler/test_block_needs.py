import pytest

from engine.kv_cache.manager import KVCacheManager
from engine.scheduler.block_needs import blocks_for_step, blocks_of_life, blocks_to_completion
from tests.engine.live_requests import running, waiting


def pool(*owned):
    """A pool of 4-token blocks in which ``owned`` (request id, tokens) are reserved."""
    kv = KVCacheManager(num_blocks=20, tokens_per_block=4, max_seq_len=1024)
    for request_id, num_tokens in owned:
        kv.reserve(request_id, num_tokens)
    return kv


@pytest.mark.parametrize(
    ("prompt_len", "max_tokens", "owned_tokens", "expected"),
    [
        (4, 1, 0, 1),  # the only generated token is never written: 4 positions
        (4, 2, 0, 2),
        (5, 4, 0, 2),  # 8 positions
        (5, 5, 0, 3),
        (5, 5, 8, 1),
        (5, 5, 40, 0),
    ],
)
def test_blocks_to_completion_leave_the_last_sampled_token_out(prompt_len, max_tokens, owned_tokens, expected):
    kv = pool((1, owned_tokens))
    assert blocks_to_completion(waiting(1, prompt_len=prompt_len, max_tokens=max_tokens), kv) == expected


def test_blocks_to_completion_stop_at_the_longest_sequence():
    kv = KVCacheManager(num_blocks=10, tokens_per_block=4, max_seq_len=16)
    assert blocks_to_completion(waiting(1, prompt_len=10, max_tokens=500), kv) == 4


def test_a_life_is_as_long_after_a_pause():
    kv, request = pool(), running(1, prompt_len=6, max_tokens=12, generated=5)
    before = blocks_of_life(request, kv)
    request.pause()
    assert blocks_of_life(request, kv) == before == 5  # 17 positions
    assert blocks_to_completion(request, kv) == 5


def test_a_row_behind_drafts_that_were_not_read_may_lie_past_the_end():
    kv, request = pool((1, 8)), running(1, prompt_len=5, max_tokens=4, generated=1)
    assert blocks_to_completion(request, kv) == 0
    request.num_in_flight = 4
    assert blocks_to_completion(request, kv) == 1  # position 9


@pytest.mark.parametrize(("owned", "needed"), [(20, 1), (24, 0)])
def test_a_generation_needs_a_block_only_where_its_last_one_is_full(owned, needed):
    kv, request = pool((1, owned)), running(1, prompt_len=20, generated=1)
    assert blocks_for_step(request, kv) == needed


def test_a_sample_on_its_way_moves_the_next_row():
    kv, request = pool((1, 20)), running(1, prompt_len=19, generated=1)
    assert blocks_for_step(request, kv) == 0
    request.num_in_flight = 1
    assert blocks_for_step(request, kv) == 1


def test_a_prompt_needs_all_that_is_left_of_it():
    assert blocks_for_step(waiting(1, prompt_len=18), pool()) == 5
    assert blocks_for_step(waiting(1, prompt_len=18, position=8), pool((1, 8))) == 3


def test_a_paused_request_needs_its_generated_tokens_again():
    request = running(1, prompt_len=18, generated=5)
    request.pause()
    assert blocks_for_step(request, pool()) == 6

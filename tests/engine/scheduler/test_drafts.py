import pytest

from engine.config import SamplingParams
from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest, RequestSpec
from engine.scheduler.drafts import any_drafts_left, blocks_for_drafts, fits_longest_sequence, has_drafts_left
from tests.engine.live_requests import running


def pool(*owned, max_seq_len=1024):
    kv = KVCacheManager(num_blocks=40, tokens_per_block=4, max_seq_len=max_seq_len)
    for request_id, num_tokens in owned:
        kv.reserve(request_id, num_tokens)
    return kv


@pytest.mark.parametrize(
    ("guess", "generated", "in_flight", "expected"),
    [
        (0, 1, 0, False),
        (1, 1, 0, False),  # the guess ends with the token that is known
        (2, 1, 0, True),
        (2, 1, 1, False),
        (50, 8, 0, True),
        (50, 9, 0, False),  # only the last token is left
    ],
)
def test_drafts_are_left_while_the_guess_goes_on_and_there_is_something_to_save(guess, generated, in_flight, expected):
    request = running(1, max_tokens=10, generated=generated, draft_tokens=(3,) * guess)
    request.num_in_flight = in_flight
    assert has_drafts_left(request) is expected


def test_one_request_with_drafts_is_enough():
    plain, drafting = running(1), running(2, draft_tokens=(3, 3, 3))
    assert any_drafts_left([plain, drafting])
    assert not any_drafts_left([plain, running(3, draft_tokens=(3,))])
    assert not any_drafts_left([])


def test_a_penalty_leaves_no_drafts():
    params = SamplingParams(max_tokens=10, repetition_penalty=1.5)
    assert not has_drafts_left(LlmRequest(RequestSpec(1, (1, 2), params, draft_tokens=(3, 4, 5))))


@pytest.mark.parametrize(
    ("generated", "owned", "to_end", "expected"),
    [
        (1, 20, True, 0),  # 24 positions were promised for its 4 tokens, K = 3 ends at 24
        (4, 24, True, 1),  # 27
        (1, 20, False, 0),  # its row needs a block anyway: 21 to 24
        (2, 24, False, 1),  # 25
        (2, 28, False, 0),
    ],
)
def test_drafts_take_what_was_not_promised_anyway(generated, owned, to_end, expected):
    request = running(1, prompt_len=20, max_tokens=4, generated=generated)
    assert blocks_for_drafts([request], 3, pool((1, owned)), to_end=to_end) == expected


def test_the_longest_sequence_holds_the_drafts_too():
    request = running(1, prompt_len=20, generated=5)
    assert fits_longest_sequence([request], 3, pool(max_seq_len=28))
    assert not fits_longest_sequence([running(2), request], 4, pool(max_seq_len=28))

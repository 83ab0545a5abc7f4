"""What a caller passed is checked whole, and refused with what was required and what was got."""

import pytest

from engine import LLM, EngineConfig, SamplingParams
from engine.errors import RequestError

CONFIG = EngineConfig(device="cpu", max_seq_len=32)


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny", CONFIG) as llm:
        yield llm


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"draft_tokens": "abc"}, "draft_tokens must be a list of token ids, got 'abc'"),
        ({"draft_tokens": 5}, "draft_tokens must be a list of token ids, got 5"),
        ({"draft_tokens": [1, 10**9]}, r"draft token 1 must be an integer in \[0, \d+\), got 1000000000"),
        ({"draft_tokens": [1, None]}, r"draft token 1 must be an integer in \[0, \d+\), got None"),
        ({"draft_tokens": [True]}, r"draft token 0 must be an integer in \[0, \d+\), got True"),
        ({"cache_salt": 5}, "cache_salt must be a string or None, got 5"),
    ],
)
def test_bad_drafts_and_salts_are_refused_and_enqueue_nothing(llm, options, text):
    with pytest.raises(RequestError, match=text):
        llm.submit([1, 2], **options)
    assert not llm.has_unfinished


def test_a_guess_may_be_longer_than_what_can_be_generated(llm):
    request_id = llm.submit([1, 2], SamplingParams(max_tokens=4, ignore_eos=True), draft_tokens=[3] * 1000)
    outputs = []
    while llm.has_unfinished:
        outputs += llm.step()
    assert [(out.request_id, len(out.token_ids)) for out in outputs] == [(request_id, 4)]

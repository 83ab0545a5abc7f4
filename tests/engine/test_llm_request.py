import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.llm_request import LEGAL_TRANSITIONS, LlmRequest, RequestSpec, RequestState
from tests.engine.live_requests import running, waiting

S = RequestState


def test_a_new_request_stands_at_its_first_prompt_token():
    request = waiting(5, prompt_len=3, max_tokens=4)
    assert (request.request_id, request.state, request.tokens) == (5, S.CONTEXT_INIT, [0, 1, 2])
    assert (request.py_prompt_len, request.context_current_position, request.context_remaining_length) == (3, 0, 3)
    assert (request.num_generated, request.max_total_tokens) == (0, 7)
    assert (request.py_seq_slot, request.py_batch_idx, request.finish_reason, request.error) == (None,) * 4
    assert request.is_context
    assert not request.is_finished
    assert not request.is_dummy
    request.check()


def test_the_cursor_moves_and_the_spec_does_not():
    request = waiting(5, prompt_len=3)
    request.context_current_position = 2
    request.generated.append(9)
    assert request.context_remaining_length == 1
    assert request.num_generated == 1
    assert request.spec.prompt_token_ids == (0, 1, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.spec.request_id = 6


def test_a_dummy_is_known_by_its_flag_alone():
    spec = RequestSpec(5, (1,), SamplingParams(), is_dummy=True)
    assert LlmRequest(spec).is_dummy
    assert not LlmRequest(dataclasses.replace(spec, is_dummy=False)).is_dummy


def test_states_are_numbered_in_the_order_of_a_life():
    assert list(S) == sorted(S)
    assert set(LEGAL_TRANSITIONS) == set(S)


def test_every_live_state_may_end_at_once_and_the_end_is_final():
    assert all(S.GENERATION_COMPLETE in LEGAL_TRANSITIONS[state] for state in S if state is not S.GENERATION_COMPLETE)
    assert LEGAL_TRANSITIONS[S.GENERATION_COMPLETE] == frozenset()


@pytest.mark.parametrize(("before", "after"), list(itertools.product(S, S)))
def test_only_legal_transitions_are_taken(before, after):
    request = waiting(1)
    request.state = before
    if after in LEGAL_TRANSITIONS[before]:
        request.move_to(after)
        assert request.state is after
    else:
        with pytest.raises(AssertionError, match=f"request 1: {before.name} -> {after.name}"):
            request.move_to(after)
        assert request.state is before


def test_a_whole_life_passes_the_check_at_each_step():
    request = waiting(1, prompt_len=4, max_tokens=2)
    request.check()
    request.context_current_position = 4
    request.check()
    request.generated.append(7)
    request.move_to(S.GENERATION_IN_PROGRESS)
    request.check()
    request.generated.append(8)
    request.move_to(S.GENERATION_COMPLETE)
    request.finish_reason = "length"
    request.check()
    assert request.is_finished


def _past_the_prompt(request):
    request.context_current_position = request.py_prompt_len + 1


def _too_many_tokens(request):
    request.generated.extend([7] * 99)


def _a_prompt_longer_than_its_tokens(request):
    request.py_prompt_len = request.num_tokens + 1


def _half_a_prompt(request):
    request.context_current_position -= 1


def _no_token(request):
    del request.generated[:]


def _a_reason_while_it_lives(request):
    request.finish_reason = "length"


def _ended_without_a_reason(request):
    request.state = S.GENERATION_COMPLETE


@pytest.mark.parametrize(
    "harm",
    [
        _past_the_prompt,
        _too_many_tokens,
        _a_prompt_longer_than_its_tokens,
        _half_a_prompt,
        _no_token,
        _a_reason_while_it_lives,
        _ended_without_a_reason,
    ],
)
def test_check_notices_a_broken_cursor(harm):
    request = running(1)
    request.check()
    harm(request)
    with pytest.raises(AssertionError):
        request.check()


def test_its_text_shows_identity_state_and_cursor():
    assert repr(waiting(3, prompt_len=20, position=8)) == "LlmRequest(3, CONTEXT_INIT, 8/20, +0)"


def test_a_paused_request_computes_its_generated_tokens_again_as_prompt():
    request = waiting(1, prompt_len=3, max_tokens=5)
    request.context_current_position = 3
    request.generated.extend([7, 8])
    request.move_to(S.GENERATION_IN_PROGRESS)
    request.pause()
    request.check()
    assert (request.py_prompt_len, request.context_remaining_length, request.num_generated) == (5, 5, 2)
    assert request.max_total_tokens == 8
    assert list(request.token_range(2, 5)) == [request.spec.prompt_token_ids[2], 7, 8]


def test_a_request_with_samples_on_the_device_is_not_paused():
    request = waiting(1, prompt_len=3)
    request.num_in_flight = 1
    with pytest.raises(AssertionError, match="samples on the device"):
        request.pause()


@given(st.integers(1, 6), st.integers(0, 4), st.data())
def test_a_range_of_tokens_is_that_of_the_whole_list(prompt_len, generated, data):
    request = waiting(1, prompt_len=prompt_len, max_tokens=9)
    request.generated.extend(range(100, 100 + generated))
    end = data.draw(st.integers(0, request.num_tokens))
    start = data.draw(st.integers(0, end))
    assert list(request.token_range(start, end)) == request.tokens[start:end]


def test_a_prompt_may_be_any_sequence_and_is_not_copied():
    request = LlmRequest(RequestSpec(0, range(10**12), SamplingParams()))
    assert list(request.token_range(10**11, 10**11 + 2)) == [10**11, 10**11 + 1]

"""Slots: set in place through the stream, registered as device memory, greedy until set."""

import pytest
import torch

from engine.config import SamplingParams
from engine.device import DeviceRegistry, make_stream
from engine.sampling.state import SamplerState
from tests.engine.sampling.sampling_rows import SPEC, draw, make_state, set_slot


def test_every_tensor_is_registered_as_device_memory():
    registry = DeviceRegistry()
    state = SamplerState.allocate(3, 10, SPEC, registry)
    drafts = {"num_accepted", "drafts_allowed", "draft_rows"}
    assert set(state.tensors()) == {"reals", "integers", "token_seen", "new_tokens", "vocab_ids"} | drafts
    for tensor in state.tensors().values():
        assert registry.owns(tensor)


def test_a_slot_that_was_never_set_is_greedy():
    state = make_state(4, 10)
    state.check()
    assert state.reals.tolist() == [[0.0, 1.0, 0.0, 1.0]] * 4
    assert state.integers.tolist() == [[10, 0]] * 4


def test_setting_a_slot_writes_its_row_in_place_and_no_other():
    state = make_state(3, 10)
    addresses = {name: tensor.data_ptr() for name, tensor in state.tensors().items()}
    params = SamplingParams(temperature=0.5, top_k=4, top_p=0.9, min_p=0.1, repetition_penalty=1.5)
    set_slot(state, 1, params, seed=2**64 - 1, seen=(3, 3, 7))
    assert state.reals[1].tolist() == [0.5, 0.9, 0.1, 1.5]
    assert state.integers[1].tolist() == [4, -1]
    assert state.token_seen.nonzero().tolist() == [[1, 3], [1, 7]]
    assert state.reals[[0, 2]].tolist() == [[0.0, 1.0, 0.0, 1.0]] * 2
    assert addresses == {name: tensor.data_ptr() for name, tensor in state.tensors().items()}
    state.check()


def test_top_k_is_cut_to_the_vocabulary():
    state = make_state(1, 10)
    set_slot(state, 0, SamplingParams(temperature=1.0, top_k=500))
    assert state.integers[0, 0] == 10


def test_a_late_copy_still_reads_its_own_request():
    stream = make_stream(SPEC, lag=100)
    state = make_state(2, 10)
    for slot, k in ((0, 3), (1, 4), (0, 5)):
        params = SamplingParams(temperature=float(k), top_k=k, repetition_penalty=2.0)
        state.set_slot(slot, params, seed=k, prompt_token_ids=(k,), stream=stream)
    assert not state.token_seen.any()
    stream.synchronize()
    assert state.integers.tolist() == [[5, 5], [4, 4]]
    assert state.token_seen.nonzero().tolist() == [[0, 5], [1, 4]]


def test_a_slot_outside_the_table_is_a_bug_of_the_caller():
    with pytest.raises(AssertionError, match="slot 2 of 2"):
        set_slot(make_state(2, 5), 2, SamplingParams())


@pytest.mark.parametrize(
    ("name", "value"), [("reals", float("nan")), ("reals", -1.0), ("integers", 0), ("new_tokens", 10), ("vocab_ids", 3)]
)
def test_the_check_finds_a_spoilt_table(name, value):
    state = make_state(2, 10)
    state.check()
    getattr(state, name)[0].fill_(value)
    with pytest.raises(AssertionError):
        state.check()


def test_setting_a_slot_anew_forgets_the_tokens_of_its_last_request():
    state = make_state(1, 6)
    penal = SamplingParams(temperature=0.0, repetition_penalty=2.0)
    set_slot(state, 0, penal, seen=(0, 1, 2))
    draw(state, torch.eye(6)[5:6], (0,), (3,))
    set_slot(state, 0, penal, seen=(4, 4))
    assert state.token_seen[0].tolist() == [False, False, False, False, True, False]
    state.check()

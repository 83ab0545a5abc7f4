"""HostInputs refuses lists that disagree."""

import dataclasses

import pytest

from engine.inputs.host_inputs import HostInputs, Segment, TokenSource

LISTS = HostInputs(
    input_ids=(5, 6),
    position_ids=(0, 1, 4, 0),
    previous_batch_indices=(2,),
    gather_ids=(1, 2, 3),
    seq_slots=(0, 2, 8),
    sequence_lengths=(2, 1, 1),
    prompt_lengths=(2, 3, 1),
    request_ids=(0, 1, 2**64 - 1),
    num_cached_tokens_per_seq=(0, 4, 0),
    block_tables=((1,), (2,), (0,)),
    num_contexts=1,
    segments=(
        Segment(TokenSource.HOST, 0, 2),
        Segment(TokenSource.DEVICE, 2, 3),
        Segment(TokenSource.ZERO, 3, 4),
    ),
)


def test_lists_that_agree_pass_the_check() -> None:
    LISTS.check()
    assert LISTS.num_tokens == 4


@pytest.mark.parametrize(
    "change",
    [
        {"input_ids": (5,)},
        {"previous_batch_indices": (2, 3)},
        {"position_ids": (0, 1, 4)},
        {"sequence_lengths": (2, 1, 2)},
        {"seq_slots": (0, 2)},
        {"gather_ids": (1, 2, 4)},
        {"request_ids": (0, 1)},
    ],
)
def test_one_list_that_disagrees_fails_the_check(change: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(AssertionError):
        dataclasses.replace(LISTS, **change).check()

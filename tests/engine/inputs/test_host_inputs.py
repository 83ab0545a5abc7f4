"""HostInputs refuses lists that disagree."""

import dataclasses

import pytest

from engine.inputs.host_inputs import DraftLayout, HostInputs, LogitRows, Segment, TokenSource

LISTS = HostInputs(
    input_ids=(5, 6),
    position_ids=(0, 1, 4, 0),
    previous_batch_indices=(2,),
    logit_rows=LogitRows(gather_ids=(1, 2, 3), seq_slots=(0, 2, 8)),
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
        {"logit_rows": LogitRows((1, 2, 3), (0, 2))},
        {"logit_rows": LogitRows((1, 2, 4), (0, 2, 8))},
        {"request_ids": (0, 1)},
    ],
)
def test_one_list_that_disagrees_fails_the_check(change: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        dataclasses.replace(LISTS, **change).check()


# A prompt of two rows, a verify row whose tokens are on the device, a dummy; two drafts each.
VERIFY = dataclasses.replace(
    LISTS,
    position_ids=(0, 1, 4, 5, 6, 0, 1, 2),
    logit_rows=LogitRows((1, *range(2, 8)), (0, 2, 2, 2, 8, 8, 8)),
    sequence_lengths=(2, 3, 3),
    segments=(
        Segment(TokenSource.HOST, 0, 2),
        Segment(TokenSource.DEVICE, 2, 5),
        Segment(TokenSource.ZERO, 5, 8),
    ),
    drafts=DraftLayout(draft_len=2, previous_draft_lens=(2,), kv_limits=(5, 9, 3)),
)


def test_rows_of_drafts_are_counted_by_sequence() -> None:
    VERIFY.check()
    assert (VERIFY.draft_len, VERIFY.num_verify_rows, VERIFY.first_device_sequence) == (2, 6, 1)
    assert (LISTS.draft_len, LISTS.num_verify_rows, LISTS.first_device_sequence) == (0, 0, 1)


@pytest.mark.parametrize(
    "drafts", [DraftLayout(1, (2,), (5, 9, 3)), DraftLayout(2, (), (5, 9, 3)), DraftLayout(2, (2,), (5, 9))]
)
def test_a_draft_layout_that_disagrees_with_the_lists_fails_the_check(drafts: DraftLayout) -> None:
    with pytest.raises(AssertionError):
        dataclasses.replace(VERIFY, drafts=drafts).check()

"""Dummies are real requests with their own blocks and slots; all or nothing, given back with their manager."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuda_graphs.dummies import DUMMY_TOKEN_ID, PADDING_DUMMY_ID, PaddingDummies
from engine.errors import NoFreeSlotsError, OutOfBlocksError
from engine.inputs.pack import pack
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.llm_request import RequestState
from engine.resources import ResourceManager
from engine.scheduled import BudgetUse, RowKind, ScheduledRequests, generation_span
from tests.engine.live_requests import running


def _resources(*, num_blocks=8, num_slots=4):
    kv_cache = KVCacheManager(num_blocks=num_blocks, tokens_per_block=4, max_seq_len=64)
    return ResourceManager(kv_cache, SeqSlotManager(num_slots))


def _free(resources):
    resources.check()
    return resources.kv_cache.num_free_blocks, resources.seq_slots.num_free


def _batch(resources, num_requests):
    requests = [running(i, prompt_len=3) for i in range(num_requests)]
    for request in requests:
        request.py_seq_slot = resources.seq_slots.assign(request.request_id)
        resources.kv_cache.reserve(request.request_id, 4)
    spans = tuple(generation_span(request) for request in requests)
    return ScheduledRequests((), spans, (), (), BudgetUse(num_requests, 8, num_requests, 4))


def test_a_padding_dummy_is_a_valid_request_with_its_own_block_and_slot():
    resources = _resources()
    dummies = PaddingDummies(resources)
    assert not dummies.available()
    dummy = dummies.preallocate()
    assert dummies.available()
    assert (dummy.request_id, dummy.is_dummy) == (2**64 - 1, True)
    assert dummy.tokens == [DUMMY_TOKEN_ID]
    assert dummy.state is RequestState.CONTEXT_INIT
    dummy.check()
    dummies.check()
    assert _free(resources) == (7, 3)


def test_preallocating_twice_returns_the_same_object():
    resources = _resources()
    dummies = PaddingDummies(resources)
    assert dummies.preallocate() is dummies.preallocate()
    assert _free(resources) == (7, 3)


def test_each_draft_length_has_its_own_dummy_with_blocks_for_all_its_rows():
    resources = _resources()
    dummies = PaddingDummies(resources)
    dummies.preallocate(0)
    dummy = dummies.preallocate(5)
    assert dummy.request_id == PADDING_DUMMY_ID - 5
    assert len(resources.kv_cache.block_table(dummy.request_id)) == 2
    span = dummies.capture_batch(1, draft_len=5).spans[0]
    assert (span.num_rows, span.num_logit_rows, span.end) == (6, 6, 6)
    assert not dummies.available(3)
    dummies.check()


def test_padding_repeats_one_object_behind_the_requests():
    resources = _resources()
    dummies = PaddingDummies(resources)
    dummy = dummies.preallocate()
    scheduled = _batch(resources, 2)
    padded = dummies.pad(scheduled, 2)
    assert padded.spans[:2] == scheduled.spans
    assert [span.kind for span in padded.spans[2:]] == [RowKind.PADDING] * 2
    assert all(span.request is dummy for span in padded.spans[2:])
    assert (padded.num_padding, padded.num_tokens) == (2, 4)
    assert padded.scheduled is scheduled


def test_no_padding_needs_no_dummy_and_changes_nothing():
    resources = _resources()
    scheduled = _batch(resources, 2)
    assert PaddingDummies(resources).pad(scheduled, 0).spans == scheduled.spans


def test_rows_reordered_by_promotion_are_padded_in_their_new_order():
    resources = _resources()
    dummies = PaddingDummies(resources)
    dummies.preallocate()
    scheduled = _batch(resources, 2)
    reordered = tuple(reversed(scheduled.spans))
    padded = dummies.pad(scheduled, 1, spans=reordered, promoted_request_ids=(1,))
    assert padded.spans[:2] == reordered
    assert padded.promoted_request_ids == (1,)


def test_padding_rows_write_only_the_dummys_block_and_slot():
    resources = _resources()
    dummies = PaddingDummies(resources)
    dummy = dummies.preallocate()
    host = pack(dummies.pad(_batch(resources, 1), 3), resources.kv_cache.block_table)
    own_blocks = resources.kv_cache.block_table(dummy.request_id)
    assert host.block_tables[1:] == (own_blocks,) * 3
    assert set(own_blocks).isdisjoint(host.block_tables[0])
    assert host.seq_slots[1:] == (dummy.py_seq_slot,) * 3
    assert dummy.py_seq_slot not in host.seq_slots[:1]
    assert host.position_ids[1:] == (0, 0, 0)


def test_a_used_dummy_is_still_a_dummy():
    resources = _resources()
    dummies = PaddingDummies(resources)
    dummies.preallocate()
    scheduled = _batch(resources, 1)
    first, second = (dummies.pad(scheduled, 1) for _ in range(2))
    assert first == second
    dummies.check()


@pytest.mark.parametrize(
    ("limits", "error"), [({"num_blocks": 1}, OutOfBlocksError), ({"num_slots": 1}, NoFreeSlotsError)]
)
def test_a_dummy_that_cannot_have_both_holds_neither(limits, error):
    resources = _resources(**limits)
    dummies = PaddingDummies(resources)
    dummies.preallocate(0)
    before = _free(resources)
    with pytest.raises(error):
        dummies.preallocate(1)
    assert _free(resources) == before
    assert not dummies.available(1)
    dummies.check()


def test_dropped_dummies_leave_nothing_and_can_be_made_again():
    resources = _resources()
    dummies = PaddingDummies(resources)
    for draft_len in (0, 3):
        dummies.preallocate(draft_len)
    dummies.drop()
    assert _free(resources) == (8, 4)
    assert not dummies.available()
    dummies.preallocate()
    dummies.check()


@settings(deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.booleans())
def test_a_warm_up_batch_is_all_or_nothing_and_temporary(prompt_lens, is_context):
    resources = _resources()
    dummies = PaddingDummies(resources)
    padding = dummies.preallocate()
    before = _free(resources)
    needed = sum(-(-n // 4) for n in prompt_lens)
    if needed <= before[0] and len(prompt_lens) <= before[1]:
        with dummies.warm_up_batch(prompt_lens, is_context=is_context) as batch:
            ids = {span.request_id for span in batch.spans}
            assert len(ids | {padding.request_id}) == len(prompt_lens) + 1
            assert all(
                span.request.is_dummy and span.end == n for span, n in zip(batch.spans, prompt_lens, strict=True)
            )
            assert batch.num_tokens == (sum(prompt_lens) if is_context else len(prompt_lens))
            assert len(batch.scheduled.context_requests) == (len(prompt_lens) if is_context else 0)
            host = pack(batch, resources.kv_cache.block_table)
            assert len(set(host.seq_slots)) == len(prompt_lens)
            assert _free(resources) == (before[0] - needed, before[1] - len(prompt_lens))
    else:
        with (
            pytest.raises((OutOfBlocksError, NoFreeSlotsError)),
            dummies.warm_up_batch(prompt_lens, is_context=is_context),
        ):
            pytest.fail("the batch does not fit")
    assert _free(resources) == before
    dummies.check()


def test_a_warm_up_forward_that_raises_gives_its_batch_back():
    resources = _resources()
    with pytest.raises(ZeroDivisionError), PaddingDummies(resources).warm_up_batch([4, 4], is_context=True):
        1 / 0  # noqa: B018
    assert _free(resources) == (8, 4)

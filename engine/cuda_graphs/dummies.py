"""Dummy requests: real requests that fill a bucket or a warm-up batch, and whose samples nobody reads.

A padding dummy is preallocated, with a block and a slot of its own, before traffic can take the last ones; all
padding rows of a step are the *same object*, so they write the same place. What identifies a dummy is the flag
``RequestSpec.is_dummy`` and nothing else: a test by incidental state ("no sample yet") breaks at its second use.

A set of dummies belongs to one ``ResourceManager``: a rebuilt manager gets a new set, so that no dummy can point
into blocks that are someone else's by now.

Does not: decide how much padding a step needs (``select.py``), schedule, or touch tensors.
Source: TensorRT-LLM's padding dummies, reduced to a decoder on one rank.
"""

import contextlib
import dataclasses
from collections.abc import Generator, Sequence

from engine.config import SamplingParams
from engine.llm_request import LlmRequest, RequestSpec
from engine.resources import ResourceManager
from engine.scheduled import BudgetUse, PaddedBatch, RowKind, ScheduledRequests, Span, context_span

PADDING_DUMMY_ID = 2**64 - 1  # minus the draft length; user ids count up from 0
WARM_UP_DUMMY_ID = PADDING_DUMMY_ID - 2**20  # the first warm-up id; they count down, clear of every draft length
DUMMY_TOKEN_ID = 1  # in every vocabulary, and no padding id that a model may treat apart

NOTHING_SCHEDULED = ScheduledRequests((), (), (), (), BudgetUse(0, 0, 0, 0))


def _dummy(request_id: int, prompt_len: int, draft_len: int = 0) -> LlmRequest:
    """Make a request whose sequence is long enough for its rows: one for each prompt token, and the drafts."""
    prompt = (DUMMY_TOKEN_ID,) * prompt_len
    return LlmRequest(RequestSpec(request_id, prompt, SamplingParams(max_tokens=1 + draft_len), is_dummy=True))


class PaddingDummies:
    """The padding dummies of one resource manager, one per draft length."""

    def __init__(self, resources: ResourceManager) -> None:
        """Hold the manager whose blocks and slots the dummies will own; allocate nothing yet."""
        self.padding_dummy_requests: dict[int, LlmRequest] = {}
        self._resources = resources

    def preallocate(self, draft_len: int = 0) -> LlmRequest:
        """Make the dummy of a draft length, once; a later call returns the same object.

        Raises: OutOfBlocksError, NoFreeSlotsError; nothing is held then.
        """
        if draft_len not in self.padding_dummy_requests:
            dummy = _dummy(PADDING_DUMMY_ID - draft_len, 1, draft_len)
            self._reserve(dummy, num_tokens=1 + draft_len)
            self.padding_dummy_requests[draft_len] = dummy
        return self.padding_dummy_requests[draft_len]

    def available(self, draft_len: int = 0) -> bool:
        """Whether a step of this draft length can be padded."""
        return draft_len in self.padding_dummy_requests

    def pad(
        self,
        scheduled: ScheduledRequests,
        num_padding: int,
        *,
        draft_len: int = 0,
        spans: tuple[Span, ...] | None = None,
        promoted_request_ids: tuple[int, ...] = (),
    ) -> PaddedBatch:
        """Append ``num_padding`` times the rows of the draft length's one dummy, last in the row order.

        spans: the rows before padding, when promotion has reordered those of the schedule.
        """
        assert draft_len == scheduled.draft_len, f"dummies of {draft_len} drafts beside {scheduled.draft_len}"
        rows = scheduled.spans if spans is None else spans
        if num_padding:
            rows = rows + (self._padding_span(draft_len),) * num_padding
        return PaddedBatch(scheduled, rows, num_padding, promoted_request_ids)

    def capture_batch(self, batch_size: int, *, draft_len: int = 0) -> PaddedBatch:
        """Make the batch with which a bucket is warmed up and captured: nothing but padding."""
        nothing = dataclasses.replace(NOTHING_SCHEDULED, draft_len=draft_len)
        return self.pad(nothing, batch_size, draft_len=draft_len)

    @contextlib.contextmanager
    def warm_up_batch(self, prompt_lens: Sequence[int], *, is_context: bool) -> Generator[PaddedBatch]:
        """Lend a batch of dummies with an id, blocks and a slot each, for an eager warm-up forward.

        is_context: each prompt runs whole; otherwise each request runs the one row of its last prompt token, over
        a cache of that length. Units: tokens. Valid: inside the block; blocks and slots go back after it.
        Raises: OutOfBlocksError, NoFreeSlotsError; nothing is held then.
        """
        dummies: list[LlmRequest] = []
        try:
            for index, prompt_len in enumerate(prompt_lens):
                dummy = _dummy(WARM_UP_DUMMY_ID - index, prompt_len)
                self._reserve(dummy, num_tokens=prompt_len)
                dummies.append(dummy)
            yield _warm_up_rows(dummies, is_context=is_context)
        finally:
            for dummy in dummies:
                self._resources.free(dummy.request_id)

    def drop(self) -> None:
        """Give every block and slot back; call before the manager is rebuilt."""
        for dummy in self.padding_dummy_requests.values():
            self._resources.free(dummy.request_id)
        self.padding_dummy_requests.clear()

    def check(self) -> None:
        """Look up again what each dummy claims to hold."""
        slots, kv_cache = self._resources.seq_slots, self._resources.kv_cache
        for draft_len, dummy in self.padding_dummy_requests.items():
            assert dummy.is_dummy
            assert dummy.request_id == PADDING_DUMMY_ID - draft_len
            assert slots.slot_of(dummy.request_id) == dummy.py_seq_slot
            assert len(kv_cache.block_table(dummy.request_id)) >= kv_cache.blocks_for(1 + draft_len)
            assert dummy.py_batch_idx is None, "a dummy has no sample that a later step could gather"

    def _padding_span(self, draft_len: int) -> Span:
        dummy, num_rows = self.padding_dummy_requests[draft_len], 1 + draft_len
        return Span(dummy, RowKind.PADDING, start=0, num_rows=num_rows, num_logit_rows=num_rows)

    def _reserve(self, dummy: LlmRequest, *, num_tokens: int) -> None:
        try:
            dummy.py_seq_slot = self._resources.seq_slots.assign(dummy.request_id)
            self._resources.kv_cache.reserve(dummy.request_id, num_tokens)
        except BaseException:
            self._resources.free(dummy.request_id)
            raise


def _warm_up_rows(dummies: Sequence[LlmRequest], *, is_context: bool) -> PaddedBatch:
    """Lay the dummies out as a scheduler would have, contexts or generations."""
    if is_context:
        spans = tuple(context_span(dummy, dummy.py_prompt_len) for dummy in dummies)
    else:
        spans = tuple(Span(dummy, RowKind.GENERATION, dummy.py_prompt_len - 1, 1, 1) for dummy in dummies)
    num_tokens = sum(span.num_rows for span in spans)
    contexts, generations = (spans, ()) if is_context else ((), spans)
    budget = BudgetUse(num_tokens, num_tokens, len(spans), len(spans))
    return PaddedBatch(ScheduledRequests(contexts, generations, (), (), budget), spans)

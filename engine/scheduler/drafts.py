"""Drafts: whether the generations of a step are verify rows, 1 + K each, or plain decode rows.

K is one number for the whole batch: every generation runs 1 + K rows, or none does. Drafts are a guess that only saves
time, so they never cost a request its place, its rows or its blocks: where 1 + K rows each do not fit, the step runs
without.

Does not: lay out rows (``micro_batch.py``), or compare drafts with samples (``sampling/verify.py``).
Source: TensorRT-LLM counts 1 + K rows a generation, and switches speculation off for a step that is too large for it.
"""

import operator
from collections.abc import Iterable, Sequence
from typing import Final

from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest
from engine.scheduler.block_needs import blocks_for_step, blocks_to_completion

_guess: Final = operator.attrgetter("spec.draft_tokens")


def has_drafts_left(request: LlmRequest) -> bool:
    """Whether a draft of the request could be accepted now.

    A penalty makes a token depend on those before it, so drafts of such a request are never accepted; and for the last
    token there is nothing to draft.
    """
    spec = request.spec
    if not spec.draft_tokens or spec.params.repetition_penalty != 1.0:
        return False
    newest = request.num_generated + request.num_in_flight
    return newest < min(len(spec.draft_tokens), request.max_new_tokens - 1)


def any_drafts_left(requests: Sequence[LlmRequest]) -> bool:
    """Whether some request has drafts left; where nobody ever had one, the answer costs little."""
    return any(map(_guess, requests)) and any(map(has_drafts_left, requests))


def blocks_for_drafts(generations: Iterable[LlmRequest], draft_len: int, kv: KVCacheManager, *, to_end: bool) -> int:
    """Count the blocks that K rows behind each generation take beyond what it was promised anyway.

    to_end: every request was promised the blocks to its completion; otherwise those of one row. They come back when the
    step is committed.
    """
    extra = 0
    for request in generations:
        owned = kv.num_reserved_blocks(request.request_id)
        promised = owned + (blocks_to_completion(request, kv) if to_end else blocks_for_step(request, kv))
        end = request.num_tokens + request.num_in_flight + draft_len
        extra += max(0, kv.blocks_for(end) - promised)
    return extra


def fits_longest_sequence(generations: Iterable[LlmRequest], draft_len: int, kv: KVCacheManager) -> bool:
    """Whether K rows behind every generation lie inside the longest block table."""
    limit = kv.max_blocks_per_seq * kv.tokens_per_block
    return all(request.num_tokens + request.num_in_flight + draft_len <= limit for request in generations)

"""Max utilization: let in whoever fits now, and pause the youngest when the running ones outgrow the pool.

The running requests are walked in arrival order, each asking for the blocks of one step. When one cannot have them, the
last one that has started is paused, its blocks come back, and the same request asks again; it may be itself the last.
A paused request keeps its place in the order of arrival and later computes its tokens again.

Nobody starves. The oldest running request is never paused, and once all others are, the whole pool is its own or
free, which holds any request that was accepted; so it gets its blocks and moves on in every step, until it ends and
the next one is the oldest. Only what ends by itself in this step (its last token is on its way) may still hold blocks
then; the oldest waits that step out.

Newcomers must leave a reserve for those that run, ``LOOK_AHEAD`` tokens each on average: without one a newcomer would
often be paused in the next step, and everything it computed was for nothing.

Does not: free a paused request's blocks or change a request (the executor does).
Source: TensorRT-LLM's max-utilization policy; its optional look-ahead is two steps.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest, RequestState
from engine.reasons import DeferralReason
from engine.scheduled import Deferral
from engine.scheduler.block_needs import blocks_for_step

LOOK_AHEAD: Final = 16


@dataclasses.dataclass(frozen=True, slots=True)
class RunningFit:
    """Which of the running requests run on. paused: the oldest first. held_back: why others got nothing."""

    fitting: tuple[LlmRequest, ...]
    paused: tuple[LlmRequest, ...]
    held_back: tuple[Deferral, ...]
    num_free_blocks: int


def fit_running(
    running: Sequence[LlmRequest],
    kv: KVCacheManager,
    *,
    exact: bool = True,
    lacking: Callable[[], Sequence[LlmRequest] | None] | None = None,
) -> RunningFit:
    """Walk the running requests, oldest first, over blocks that are not reserved yet.

    exact: whether the blocks left over matter. If not, and there is one for each, nobody is asked: a decode row needs
    one at most. lacking: names the generations that need a block, so that where there is one for each the others are
    not asked; None when they are not known.
    """
    if not exact and kv.num_free_blocks >= sum([blocks_for_step(r, kv) if r.is_context else 1 for r in running]):
        return RunningFit(tuple(running), (), (), 0)
    known = lacking() if lacking is not None else None
    if known is not None:
        is_context = RequestState.CONTEXT_INIT
        asked = [*[request for request in running if request.state is is_context], *known]
        num_left = kv.num_free_blocks - sum([blocks_for_step(request, kv) for request in asked])
        if num_left >= 0:
            return RunningFit(tuple(running), (), (), num_left)
    num_free, num_kept, end = kv.num_free_blocks, 0, len(running)
    uses: dict[int, int] = {}
    held_back: list[Deferral] = []
    while num_kept < end:
        needed = blocks_for_step(running[num_kept], kv)
        if needed <= num_free:
            num_free -= needed
            num_kept += 1
            continue
        if end == 1:
            oldest = running[0].request_id
            held_back.append(Deferral(oldest, DeferralReason.NO_BLOCKS_FOR_STEP, needed, num_free))
            break
        end -= 1
        held_back.append(Deferral(running[end].request_id, DeferralReason.PAUSED, needed, num_free))
        num_free += _release(running[end].request_id, kv, uses)
    return RunningFit(tuple(running[:num_kept]), tuple(running[end:]), tuple(held_back), num_free)


def _release(request_id: int, kv: KVCacheManager, uses: dict[int, int]) -> int:
    # A block comes back when the last request that holds it is paused; ``uses`` is what is left of its holders.
    num_freed = 0
    for block in kv.block_table(request_id):
        left = uses[block] = uses.get(block, kv.ledger.num_uses(block)) - 1
        num_freed += not left
    return num_freed


def reserve_for(num_running: int, tokens_per_block: int) -> int:
    """Count the blocks that newcomers leave to so many running requests."""
    return -(-num_running * LOOK_AHEAD // tokens_per_block)

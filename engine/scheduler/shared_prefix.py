"""Shared prefix: whether a newcomer had better wait, because its next block is being computed for somebody else.

Two prompts with the same beginning, one of them half computed: let in at once, the second would compute the same blocks
again; a few steps later it finds them in the cache. It waits only for prompts that are being computed, each of which
moves on or is the next to; so the wait ends with theirs.

Does not: look into the pool, or let anybody overtake (``capacity.py``).
Source: TensorRT-LLM's capacity scheduler calls it beneficial to skip; there, others overtake meanwhile.
"""

from collections.abc import Sequence

from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest


def awaited_prefix(request: LlmRequest, computing: Sequence[LlmRequest], kv: KVCacheManager) -> tuple[int, int] | None:
    """Return (tokens of the beginning with the awaited block, tokens that are cached), None when nothing is awaited.

    computing: started requests whose prompts are not done.
    """
    if not computing or not kv.enable_block_reuse:
        return None
    size = kv.tokens_per_block
    num_cached = kv.reusable_tokens(request) // size * size
    end = num_cached + size
    if end >= request.py_prompt_len:  # at least one token is computed anyway
        return None
    is_awaited = any(other.py_prompt_len >= end and _begin_alike(request, other, end, size) for other in computing)
    return (end, num_cached) if is_awaited else None


def _begin_alike(first: LlmRequest, second: LlmRequest, end: int, tokens_per_block: int) -> bool:
    one, two = first.spec, second.spec
    if one.cache_salt != two.cache_salt or (one.block_keys is None) != (two.block_keys is None):
        return False
    if one.block_keys is not None and two.block_keys is not None:
        count = end // tokens_per_block
        return len(one.block_keys) >= count and one.block_keys[:count] == two.block_keys[:count]
    return list(first.token_range(0, end)) == list(second.token_range(0, end))

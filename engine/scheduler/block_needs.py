"""How many KV blocks a request may still ask for: to its end, and in its next step.

A request's last sampled token is never fed back, so its key and value are never written: a life has one position less
than tokens. Generated tokens are counted from the request's start, so a pause changes nothing.

Does not: decide who runs (``capacity.py``, ``utilization.py``), or reserve.
Source: TensorRT-LLM's blocks-to-completion and one-step needs.
"""

from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest


def blocks_of_life(request: LlmRequest, kv: KVCacheManager) -> int:
    """Count the blocks of a request at its latest possible end. It is the same at every moment of its life."""
    return kv.blocks_for(min(request.max_total_tokens - 1, kv.max_seq_len))


def blocks_to_completion(request: LlmRequest, kv: KVCacheManager) -> int:
    """Count the blocks a request may still ask for until it ends.

    Never less than its next row needs: a row behind drafts that the host has not seen accepted may lie past the end.
    """
    spec, size = request.spec, kv.tokens_per_block
    most = spec.params.max_tokens if spec.max_new_tokens is None else spec.max_new_tokens
    last = max(most - 1, len(request.generated) + request.num_in_flight)
    end = min(len(spec.prompt_token_ids) + last, kv.max_seq_len)
    return max(0, -(-end // size) - kv.num_reserved_blocks(spec.request_id))


def blocks_for_step(request: LlmRequest, kv: KVCacheManager) -> int:
    """Count the blocks a request needs to run now: all that is left of a prompt, or one decode row.

    A prompt may get a smaller chunk; but one whose rest does not fit would have to be paused before its first token.
    """
    end = request.py_prompt_len if request.is_context else request.num_tokens + request.num_in_flight
    owned = kv.num_reserved_blocks(request.spec.request_id)
    if end <= owned * kv.tokens_per_block:
        return 0  # most rows, most of the time
    return max(0, kv.blocks_for(min(end, kv.max_seq_len)) - owned)

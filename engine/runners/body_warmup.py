"""Warm-up of the layer stack alone: compile it for every bucket's rows, run and capture its prefill chains.

Both need rows and no requests. They run over a step of no sequence at all, whose rows are padding: attention gives
zeros for them and writes no KV, so neither blocks nor slots are taken.

Does not: warm up decode graphs (``decoder.py``), or know what a chain is. Source: TensorRT-LLM's warm-up order:
compile, run every shape, capture.
"""

from collections.abc import Sequence

import torch

from engine.attention.interface import AttentionMetadata, AttentionStep, KVCacheParams
from engine.cuda_graphs.prefill import PrefillGraphs
from engine.device import Stream
from engine.inputs.input_buffers import DecoderInputBuffers
from engine.models.llama import CausalLM


def step_of_padding(num_rows: int) -> AttentionStep:
    """Make a step of so many rows that belong to nobody."""
    return AttentionStep(
        request_ids=(),
        seq_lens=(),
        prompt_lens=(),
        block_tables=(),
        kv_cache_params=KVCacheParams(use_cache=True, num_cached_tokens_per_seq=()),
        num_contexts=0,
        num_tokens=0,
        padded_num_tokens=num_rows,
    )


def compile_body(
    model: CausalLM, rows: Sequence[int], buffers: DecoderInputBuffers, metadata: AttentionMetadata, stream: Stream
) -> None:
    """Run the stack once for each number of rows, so that whatever compiles has compiled; nothing to do uncompiled.

    Raises: ConfigError when the compiler fails.
    """
    if model.compiled is None:
        return

    def run(num_rows: int) -> None:
        with torch.no_grad():
            model(buffers.input_ids[:num_rows], buffers.position_ids[..., :num_rows], metadata)

    with model.compiled.opening():
        for num_rows in rows:
            metadata.prepare(step_of_padding(num_rows))
            stream.launch(lambda num_rows=num_rows: run(num_rows))
            stream.synchronize()


def capture_chains(graphs: PrefillGraphs, metadata: AttentionMetadata, *, is_warmup_only: bool) -> None:
    """Run every prefill bucket eagerly, and capture its chain unless is_warmup_only; largest first.

    Raises: CaptureRefusedError.
    """
    for bucket in reversed(graphs.buckets):
        metadata.prepare(step_of_padding(bucket))
        graphs.capture(bucket, metadata, is_warmup_only=is_warmup_only)

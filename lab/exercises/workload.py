"""Workload: what an adapter asks a tiny engine to run, so that a case of an exercise can be watched.

Does not: run it (``plugging.py`` does).
"""

import dataclasses
from collections.abc import Sequence
from typing import Final

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig

MOST_REQUESTS: Final = 16
_LONGEST_PROMPT: Final = 40


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """A configuration, prompts with their arrival steps, and the sampling parameters of those without their own."""

    config: EngineConfig
    prompts: tuple[tuple[int, list[int]] | tuple[int, list[int], SamplingParams], ...]
    params: SamplingParams


def decode_workload(num_requests: int, *, sizes: tuple[int, ...] | None = None, num_tokens: int = 4) -> Workload:
    """Return a workload in which so many requests decode together, with graphs of these sizes (None: the default)."""
    count = max(1, min(num_requests, MOST_REQUESTS))
    most = max(count, *(sizes or (1,)))
    prompts = tuple((0, [(7 * at + k) % 200 + 1 for k in range(4)]) for at in range(count))
    return Workload(
        EngineConfig(
            device="cpu",
            max_seq_len=64,
            scheduler=SchedulerConfig(max_batch_size=most, max_num_tokens=max(64, 4 * most)),
            cuda_graph=CudaGraphConfig(batch_sizes=sizes),
        ),
        prompts,
        params(num_tokens),
    )


def joining_workload(num_decoding: int, prompt_lengths: Sequence[int]) -> Workload:
    """Return a workload in which requests decode, and prompts of these lengths join them at step 2, in chunks."""
    decoding = max(1, min(num_decoding, MOST_REQUESTS // 2))
    lengths = [max(1, min(length, _LONGEST_PROMPT)) for length in prompt_lengths[: MOST_REQUESTS // 2]]
    prompts = [(0, [(7 * at + k) % 200 + 1 for k in range(4)]) for at in range(decoding)]
    prompts += [(2, [(5 * at + 3 * k) % 200 + 1 for k in range(length)]) for at, length in enumerate(lengths)]
    return Workload(
        EngineConfig(
            device="cpu",
            max_seq_len=64,
            scheduler=SchedulerConfig(
                max_batch_size=len(prompts), max_num_tokens=4 * MOST_REQUESTS, chunking="fcfs", chunk_unit=16
            ),
            cuda_graph=CudaGraphConfig(batch_sizes=tuple(sorted({decoding, len(prompts)}))),
        ),
        tuple(prompts),
        params(6),
    )


def params(num_tokens: int) -> SamplingParams:
    """Return greedy parameters that ignore the end of text."""
    return SamplingParams(max_tokens=num_tokens, ignore_eos=True)

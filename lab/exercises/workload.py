"""Workload: what an adapter asks a tiny engine to run, so that a case of an exercise can be watched.

Does not: run it (``plugging.py`` does).
"""

import dataclasses
from typing import Final

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig

MOST_REQUESTS: Final = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """A configuration, prompts with their arrival steps, and one set of sampling parameters."""

    config: EngineConfig
    prompts: tuple[tuple[int, list[int]], ...]
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


def params(num_tokens: int) -> SamplingParams:
    """Return greedy parameters that ignore the end of text."""
    return SamplingParams(max_tokens=num_tokens, ignore_eos=True)

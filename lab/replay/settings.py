"""Settings of a replay: what a command line gives, and what the trace itself decides where it gives nothing.

By default pool and max_seq_len hold the whole trace, so that nothing waits for memory; blocks are reused only where a
trace says what its prompts hold.

Does not: read or run a trace. Torch-free.
"""

import dataclasses
from typing import Final

from engine.config import (
    CapacityPolicyName,
    ChunkingName,
    CudaGraphConfig,
    EngineConfig,
    KVCacheConfig,
    SchedulerConfig,
)
from engine.errors import ConfigError
from engine.fields import number, shown
from lab.replay.cost_model import DEFAULT, CostModel
from lab.replay.serving_trace import ServingTrace

_MOST_MICROSECONDS: Final = 1e18  # on the virtual clock, which is kept in 64 bits


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GraphSettings:
    """Which graphs count as captured. buckets: batch sizes; None takes the engine's default list."""

    buckets: tuple[int, ...] | None = None
    prefill_buckets: tuple[int, ...] = ()
    padding: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """None means: as the trace needs it. speed: arrivals come so many times as fast."""

    num_blocks: int | None = None
    max_seq_len: int | None = None
    max_batch_size: int = 256
    max_num_tokens: int = 8192
    policy: CapacityPolicyName = "guaranteed_no_evict"
    chunking: ChunkingName | None = "fcfs"
    overlap: bool = False
    reuse: bool | None = None
    speed: float = 1.0
    graphs: GraphSettings = GraphSettings()
    costs: CostModel = DEFAULT

    def config(self, trace: ServingTrace) -> EngineConfig:
        """Return the engine's configuration for a trace. Raises: ConfigError."""
        size = trace.tokens_per_block
        return EngineConfig(
            device="cpu",
            max_seq_len=self.max_seq_len or max(2, trace.longest),
            overlap=self.overlap,
            scheduler=SchedulerConfig(
                max_batch_size=self.max_batch_size,
                max_num_tokens=self.max_num_tokens,
                capacity_policy=self.policy,
                chunking=self.chunking,
            ),
            kv_cache=KVCacheConfig(
                tokens_per_block=size,
                num_blocks=self.num_blocks or trace.num_blocks(size),
                enable_block_reuse=trace.has_hashes if self.reuse is None else self.reuse,
            ),
            cuda_graph=CudaGraphConfig(
                batch_sizes=self.graphs.buckets,
                prefill_num_tokens=self.graphs.prefill_buckets,
                enable_padding=self.graphs.padding,
            ),
        )

    def timed(self, trace: ServingTrace) -> ServingTrace:
        """Return the trace with its arrivals ``speed`` times as fast. Raises: ConfigError."""
        speed = number("speed", self.speed, 0.0, 1e6, refusal=ConfigError, low_open=True)
        requests = [dataclasses.replace(r, arrival_us=r.arrival_us / speed) for r in trace.requests]
        if requests[-1].arrival_us > _MOST_MICROSECONDS:
            least = trace.requests[-1].arrival_us / _MOST_MICROSECONDS
            message = (
                f"speed must bring the last request within {_MOST_MICROSECONDS:g} virtual microseconds, got "
                f"{shown(speed)}, which has it after {requests[-1].arrival_us:g}; use a speed of {least:.1g} or more"
            )
            raise ConfigError(message)
        return trace if speed == 1.0 else dataclasses.replace(trace, requests=tuple(requests))

    def sentences(self, trace: ServingTrace) -> tuple[str, ...]:
        """Say what is served and under which limits, a line each."""
        config, last = self.config(trace), trace.requests[-1].arrival_us / 1e6
        kv, limits = config.kv_cache, config.scheduler
        reuse = "on" if kv.enable_block_reuse else "off"
        why = "" if trace.has_hashes or kv.enable_block_reuse else " (the trace does not say what its prompts hold)"
        pool = f"{kv.num_blocks} blocks of {kv.tokens_per_block} tokens, max_seq_len {config.max_seq_len}"
        budgets = f"at most {limits.max_batch_size} requests and {limits.max_num_tokens} rows"
        rules = f"policy {limits.capacity_policy}, chunking {limits.chunking or 'off'}"
        return (
            f"{trace.path}: {len(trace.requests)} requests, the last one after {last:.1f} virtual s",
            f"pool: {pool}, block reuse {reuse}{why}",
            f"a step: {budgets}, {rules}, overlap {'on' if config.overlap else 'off'}",
            *self.costs.sentences(),
        )

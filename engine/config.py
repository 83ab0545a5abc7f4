"""Configuration: frozen dataclasses, validated once, no inheritance, no environment variables.

Decides only whether the numbers make sense together. Does not: read the machine ("auto" is resolved in
``device.py``), know a model, or change after construction.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

from engine.errors import ConfigError, RequestError

CapacityPolicyName = Literal["guaranteed_no_evict", "max_utilization", "static_batch"]
ChunkingName = Literal["fcfs", "equal_progress"]
BackendName = Literal["native", "vanilla"]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _require_positive(owner: str, **values: object) -> None:
    for name, value in values.items():
        if not _is_int(value) or value < 1:  # type: ignore[operator]
            message = f"{owner}.{name} must be an integer of at least 1, got {value!r}"
            raise ConfigError(message)


def _require_choice(field: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        message = f"{field} must be one of {', '.join(map(repr, choices))}, got {value!r}"
        raise ConfigError(message)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerConfig:
    """Budgets of one step.

    max_batch_size: requests a step may run. max_num_tokens: rows a step may run.
    chunking: None runs every prompt whole; "fcfs" gives the budget to the oldest prompt first.
    chunk_unit: tokens to which a truncated chunk is rounded down; None means tokens_per_block.
    """

    max_batch_size: int = 8
    max_num_tokens: int = 512
    capacity_policy: CapacityPolicyName = "guaranteed_no_evict"
    chunking: ChunkingName | None = None
    chunk_unit: int | None = None

    def __post_init__(self) -> None:
        """Check each field and the budget against the batch."""
        _require_positive("SchedulerConfig", max_batch_size=self.max_batch_size, max_num_tokens=self.max_num_tokens)
        _require_choice(
            "SchedulerConfig.capacity_policy", self.capacity_policy, ("guaranteed_no_evict", "static_batch")
        )
        _require_choice("SchedulerConfig.chunking", self.chunking, (None, "fcfs"))
        if self.chunk_unit is not None:
            _require_positive("SchedulerConfig", chunk_unit=self.chunk_unit)
        if self.max_num_tokens < self.max_batch_size:
            message = (
                f"SchedulerConfig.max_num_tokens must be at least max_batch_size (one row a request), got "
                f"max_num_tokens={self.max_num_tokens} with max_batch_size={self.max_batch_size}; "
                f"raise max_num_tokens to {self.max_batch_size} or lower max_batch_size"
            )
            raise ConfigError(message)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class KVCacheConfig:
    """The block pool.

    num_blocks: None sizes it from free memory (CUDA: memory_fraction of it; CPU: enough for max_batch_size
    sequences of max_seq_len, at most a quarter of RAM). host_blocks, enable_block_reuse and
    enable_partial_reuse belong to the reuse tree.
    """

    tokens_per_block: int = 16
    num_blocks: int | None = None
    memory_fraction: float = 0.9
    host_blocks: int = 0
    enable_block_reuse: bool = True
    enable_partial_reuse: bool = True

    def __post_init__(self) -> None:
        """Check each field."""
        _require_positive("KVCacheConfig", tokens_per_block=self.tokens_per_block)
        if self.num_blocks is not None:
            _require_positive("KVCacheConfig", num_blocks=self.num_blocks)
        if not 0.0 < self.memory_fraction <= 1.0:
            message = f"KVCacheConfig.memory_fraction must lie in (0, 1], got {self.memory_fraction!r}"
            raise ConfigError(message)
        if self.host_blocks != 0:
            message = f"KVCacheConfig.host_blocks must be 0 (there is no host tier yet), got {self.host_blocks!r}"
            raise ConfigError(message)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CudaGraphConfig:
    """Decode graphs.

    batch_sizes: the buckets, ascending; None takes TensorRT-LLM's default list for the padding setting.
    enable_padding: fill a bucket with dummy requests (upstream's default is off, ours is on).
    strict_buffers: compare every address of metadata and statics before each replay.
    """

    enabled: bool = True
    batch_sizes: tuple[int, ...] | None = None
    enable_padding: bool = True
    prefill_num_tokens: tuple[int, ...] = ()
    strict_buffers: bool = True

    def __post_init__(self) -> None:
        """Check the bucket list; its maximum is checked against the scheduler in EngineConfig."""
        if self.batch_sizes is not None:
            object.__setattr__(self, "batch_sizes", tuple(self.batch_sizes))
            _require_positive("CudaGraphConfig", **{f"batch_sizes[{i}]": v for i, v in enumerate(self.batch_sizes)})
            if not self.batch_sizes:
                message = "CudaGraphConfig.batch_sizes must not be empty; use enabled=False to run without graphs"
                raise ConfigError(message)
            if list(self.batch_sizes) != sorted(set(self.batch_sizes)):
                message = (
                    f"CudaGraphConfig.batch_sizes must be ascending without duplicates, got {self.batch_sizes}; "
                    f"use {tuple(sorted(set(self.batch_sizes)))}"
                )
                raise ConfigError(message)
        if tuple(self.prefill_num_tokens) != ():
            message = (
                f"CudaGraphConfig.prefill_num_tokens must be empty (prefill graphs are not built yet), "
                f"got {self.prefill_num_tokens!r}"
            )
            raise ConfigError(message)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """Everything an engine is built from; see the groups for their fields.

    device: "auto", "cpu", "cuda" or "cuda:N". dtype: "auto" (float32 on CPU, bfloat16 on CUDA), "float32",
    "bfloat16" or "float16". seed: weights of the tiny model and noise of requests without a seed.
    """

    device: str = "auto"
    dtype: str = "auto"
    max_seq_len: int = 2048
    seed: int = 0
    attention_backend: BackendName = "native"
    overlap: bool = False
    torch_compile: bool = False
    scheduler: SchedulerConfig = dataclasses.field(default_factory=SchedulerConfig)
    kv_cache: KVCacheConfig = dataclasses.field(default_factory=KVCacheConfig)
    cuda_graph: CudaGraphConfig = dataclasses.field(default_factory=CudaGraphConfig)

    def __post_init__(self) -> None:
        """Check each field, then the groups against each other."""
        _require_positive("EngineConfig", max_seq_len=self.max_seq_len)
        _require_choice("EngineConfig.dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))
        _require_choice("EngineConfig.attention_backend", self.attention_backend, ("native", "vanilla"))
        if not isinstance(self.device, str) or self.device.split(":")[0] not in ("auto", "cpu", "cuda"):
            message = f"EngineConfig.device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got {self.device!r}"
            raise ConfigError(message)
        for name in ("overlap", "torch_compile"):
            if getattr(self, name):
                message = f"EngineConfig.{name} must be False (not built yet), got {getattr(self, name)!r}"
                raise ConfigError(message)
        self._check_groups()

    def _check_groups(self) -> None:
        for name, kind in (("scheduler", SchedulerConfig), ("kv_cache", KVCacheConfig), ("cuda_graph", CudaGraphConfig)):
            if not isinstance(getattr(self, name), kind):
                message = f"EngineConfig.{name} must be a {kind.__name__}, got {getattr(self, name)!r}"
                raise ConfigError(message)
        scheduler, sizes = self.scheduler, self.cuda_graph.batch_sizes
        if sizes is not None and sizes[-1] > scheduler.max_batch_size:
            message = (
                f"CudaGraphConfig.batch_sizes must not exceed SchedulerConfig.max_batch_size="
                f"{scheduler.max_batch_size}, got {sizes}; drop the larger sizes or raise max_batch_size"
            )
            raise ConfigError(message)
        if scheduler.chunking is not None:
            needed = scheduler.max_batch_size + self.chunk_unit - 1
            if scheduler.max_num_tokens < needed:
                message = (
                    f"chunking needs SchedulerConfig.max_num_tokens >= max_batch_size + chunk_unit - 1 = "
                    f"{scheduler.max_batch_size} + {self.chunk_unit} - 1 = {needed}, got {scheduler.max_num_tokens}; "
                    f"raise max_num_tokens to {needed} or lower chunk_unit or max_batch_size"
                )
                raise ConfigError(message)

    @property
    def chunk_unit(self) -> int:
        """Tokens to which a truncated chunk is rounded down."""
        return self.scheduler.chunk_unit or self.kv_cache.tokens_per_block


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How one request is sampled and when it ends.

    max_tokens: generated tokens at most. temperature 0 is greedy. top_k None is off. stop: strings that end the
    text (left out of it). stop_token_ids: ids that end it. seed: None derives one from the engine's seed and the
    request id. logprobs: n most likely tokens a step, beside the chosen one.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        """Check every field; the first wrong one is named."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        for name, low in (("max_tokens", 1), ("top_k", 1), ("seed", 0), ("logprobs", 0)):
            value = getattr(self, name)
            if value is None and name != "max_tokens":
                continue
            if not _is_int(value) or value < low:
                message = f"SamplingParams.{name} must be an integer of at least {low}, got {value!r}"
                raise RequestError(message)
        self._check_float("temperature", 0.0, math.inf, low_open=False)
        self._check_float("top_p", 0.0, 1.0, low_open=True)
        self._check_float("min_p", 0.0, 1.0, low_open=False)
        self._check_float("repetition_penalty", 0.0, math.inf, low_open=True)
        if not all(isinstance(s, str) and s for s in stop):
            message = f"SamplingParams.stop must hold non-empty strings, got {stop!r}"
            raise RequestError(message)
        if not all(_is_int(i) and i >= 0 for i in self.stop_token_ids):
            message = f"SamplingParams.stop_token_ids must hold token ids (integers >= 0), got {self.stop_token_ids!r}"
            raise RequestError(message)

    def _check_float(self, name: str, low: float, high: float, *, low_open: bool) -> None:
        value = getattr(self, name)
        interval = f"{'(' if low_open else '['}{low:g}, {high:g}{']' if math.isfinite(high) else ')'}"
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or value > high or value < low or (low_open and value == low):
            message = f"SamplingParams.{name} must be a finite number in {interval}, got {value!r}"
            raise RequestError(message)

    @property
    def is_greedy(self) -> bool:
        """Whether argmax of the raw logits decides (so that the GREEDY sampler suffices)."""
        return self.temperature == 0.0 and self.repetition_penalty == 1.0

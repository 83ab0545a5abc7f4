"""Configuration: frozen dataclasses, validated once, no inheritance, no environment variables.

Decides only whether the numbers make sense together. Does not: read the machine ("auto" is resolved in
``device.py``, and ``footprint.py`` knows whether it all fits), know a model, or change after construction.
"""

import dataclasses
import functools
import math
import re
from typing import Literal

from engine import fields
from engine.errors import ConfigError, RequestError
from engine.fields import shown

CapacityPolicyName = Literal["guaranteed_no_evict", "max_utilization", "static_batch"]
ChunkingName = Literal["fcfs", "equal_progress"]
BackendName = Literal["native", "vanilla"]

_MAX_SEED = 2**63 - 1  # seeds live in int64 tensors
# Far above what any machine serves, and small enough that no sum of them overflows or takes long to list.
_MAX_BATCH_SIZE = 1 << 14
_MAX_TOKENS = 1 << 24  # rows of a step, or tokens of a sequence
_MAX_TOKENS_PER_BLOCK = 1 << 16
_MAX_BLOCKS = 1 << 26
_MAX_DRAFT_LEN = 64
_DEVICE = r"auto|cpu|cuda(:\d+)?"

_integer = functools.partial(fields.integer, refusal=ConfigError)
_number = functools.partial(fields.number, refusal=ConfigError)
_items = functools.partial(fields.items, refusal=ConfigError)
_require_choice = functools.partial(fields.choice, refusal=ConfigError)


def _require_flags(owner: object, *names: str) -> None:
    for name in names:
        fields.flag(f"{type(owner).__name__}.{name}", getattr(owner, name), refusal=ConfigError)


def _integers(field: str, value: object, *, at_most: int) -> tuple[int, ...]:
    """Take a sequence of positive integers; one alone, and a list as text, are slips with a hint."""
    meant = (value,) if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}(, ?[0-9]{1,9})*", value):
        meant = tuple(map(int, value.split(",")))
    given = _items(field, value, "integers", hint="" if meant is None else f"use {shown(meant)}")
    return tuple(_integer(f"{field}[{i}]", size, low=1, at_most=at_most) for i, size in enumerate(given))


def _require_ascending(field: str, sizes: tuple[int, ...]) -> None:
    ascending = tuple(sorted(set(sizes)))
    if sizes != ascending:
        message = f"{field} must be ascending without duplicates, got {shown(sizes)}; use {shown(ascending)}"
        raise ConfigError(message)


def _normalise(owner: object, **values: object) -> None:
    # The records are frozen for their users; the constructor alone puts plain ints, floats and tuples in place.
    for name, value in values.items():
        object.__setattr__(owner, name, value)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerConfig:
    """Budgets of one step.

    max_batch_size: requests a step may run. max_num_tokens: rows a step may run.
    capacity_policy: "guaranteed_no_evict" lets in whom the pool can carry to the end, "static_batch" only when nothing
    runs; "max_utilization" whoever fits now, and pauses the youngest when the pool gets full.
    chunking: None runs every prompt whole; "fcfs" gives the budget to the oldest prompt first; "equal_progress" one
    chunk unit to each, round by round.
    chunk_unit: tokens to which a truncated chunk is rounded down; None means tokens_per_block.
    draft_len: drafts that every generation verifies in a step in which any has drafts left; 0 leaves drafts unused.
    A step in which so many rows or blocks are lacking runs without.
    """

    max_batch_size: int = 8
    max_num_tokens: int = 512
    capacity_policy: CapacityPolicyName = "guaranteed_no_evict"
    chunking: ChunkingName | None = None
    chunk_unit: int | None = None
    draft_len: int = 4

    def __post_init__(self) -> None:
        """Check each field and the budget against the batch."""
        _normalise(
            self,
            max_batch_size=_integer(
                "SchedulerConfig.max_batch_size", self.max_batch_size, low=1, at_most=_MAX_BATCH_SIZE
            ),
            max_num_tokens=_integer("SchedulerConfig.max_num_tokens", self.max_num_tokens, low=1, at_most=_MAX_TOKENS),
            draft_len=_integer("SchedulerConfig.draft_len", self.draft_len, low=0, at_most=_MAX_DRAFT_LEN),
        )
        policies = ("guaranteed_no_evict", "max_utilization", "static_batch")
        _require_choice("SchedulerConfig.capacity_policy", self.capacity_policy, policies)
        _require_choice("SchedulerConfig.chunking", self.chunking, (None, "fcfs", "equal_progress"))
        if self.chunk_unit is not None:
            unit = _integer("SchedulerConfig.chunk_unit", self.chunk_unit, low=1, at_most=_MAX_TOKENS)
            _normalise(self, chunk_unit=unit)
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
    sequences of max_seq_len, at most a quarter of RAM).
    enable_block_reuse: full blocks stay until their room is needed, for prompts that begin alike.
    enable_partial_reuse: also the beginning of a block, by copy. host_blocks: evicted blocks that host memory keeps.
    """

    tokens_per_block: int = 16
    num_blocks: int | None = None
    memory_fraction: float = 0.9
    host_blocks: int = 0
    enable_block_reuse: bool = True
    enable_partial_reuse: bool = True

    def __post_init__(self) -> None:
        """Check each field."""
        _normalise(
            self,
            tokens_per_block=_integer(
                "KVCacheConfig.tokens_per_block", self.tokens_per_block, low=1, at_most=_MAX_TOKENS_PER_BLOCK
            ),
            memory_fraction=_number("KVCacheConfig.memory_fraction", self.memory_fraction, 0.0, 1.0, low_open=True),
            host_blocks=_integer("KVCacheConfig.host_blocks", self.host_blocks, low=0, at_most=_MAX_BLOCKS),
        )
        if self.num_blocks is not None:
            num_blocks = _integer("KVCacheConfig.num_blocks", self.num_blocks, low=1, at_most=_MAX_BLOCKS)
            _normalise(self, num_blocks=num_blocks)
        _require_flags(self, "enable_block_reuse", "enable_partial_reuse")
        if self.host_blocks and not self.enable_block_reuse:
            message = (
                f"KVCacheConfig.host_blocks must be 0 without block reuse (they keep blocks for later prompts), got "
                f"{self.host_blocks}; set enable_block_reuse=True"
            )
            raise ConfigError(message)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CudaGraphConfig:
    """Decode graphs, and prefill graphs if wanted.

    batch_sizes: the buckets, ascending; None takes TensorRT-LLM's default list for the padding setting.
    enable_padding: fill a bucket with dummy requests (upstream's default is off, ours is on).
    prefill_num_tokens: rows to which a step with prompts is padded, ascending; each gets a chain of captured segments.
    strict_buffers: compare every address of metadata and statics before each replay.
    sample_modes: the samplers that get graphs, of "greedy" and "full"; fewer make warm-up shorter and the pool smaller.
    draft_lens: the draft lengths that get graphs of their own, ascending; steps without drafts have theirs anyway.
    """

    enabled: bool = True
    batch_sizes: tuple[int, ...] | None = None
    enable_padding: bool = True
    prefill_num_tokens: tuple[int, ...] = ()
    strict_buffers: bool = True
    sample_modes: tuple[str, ...] = ("greedy", "full")
    draft_lens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the bucket list; its maximum is checked against the scheduler in EngineConfig."""
        _require_flags(self, "enabled", "enable_padding", "strict_buffers")
        if self.batch_sizes is not None:
            self._check_batch_sizes()
        rows = _integers("CudaGraphConfig.prefill_num_tokens", self.prefill_num_tokens, at_most=_MAX_TOKENS)
        _require_ascending("CudaGraphConfig.prefill_num_tokens", rows)
        drafts = _integers("CudaGraphConfig.draft_lens", self.draft_lens, at_most=_MAX_DRAFT_LEN)
        _require_ascending("CudaGraphConfig.draft_lens", drafts)
        _normalise(self, prefill_num_tokens=rows, draft_lens=drafts)
        given = self.sample_modes
        hint = f"use ({given!r},)" if isinstance(given, str) and given in ("greedy", "full") else ""
        modes = _items("CudaGraphConfig.sample_modes", given, "sampler modes", hint=hint)
        if not modes or not all(isinstance(mode, str) and mode in ("greedy", "full") for mode in modes):
            meant = tuple(mode.lower() if isinstance(mode, str) else mode for mode in modes)
            hint = "" if modes else "use enabled=False to run without graphs"
            if modes and all(isinstance(mode, str) and mode in ("greedy", "full") for mode in meant):
                hint = f"use {shown(meant)}"
            fields.refuse(
                ConfigError, "CudaGraphConfig.sample_modes", "a sequence of 'greedy', 'full' or both", given, hint
            )
        _normalise(self, sample_modes=tuple(mode for mode in ("greedy", "full") if mode in modes))

    def _check_batch_sizes(self) -> None:
        sizes = _integers("CudaGraphConfig.batch_sizes", self.batch_sizes, at_most=_MAX_BATCH_SIZE)
        if not sizes:
            message = "CudaGraphConfig.batch_sizes must not be empty, got (); use enabled=False to run without graphs"
            raise ConfigError(message)
        _require_ascending("CudaGraphConfig.batch_sizes", sizes)
        _normalise(self, batch_sizes=sizes)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """Everything an engine is built from; see the groups for their fields.

    device: "auto", "cpu", "cuda" or "cuda:N". dtype: "auto" (float32 on CPU, bfloat16 on CUDA), "float32",
    "bfloat16" or "float16". seed: weights of the tiny model and noise of requests without a seed. torch_compile:
    warm-up compiles the model between attentions, for the rows of every bucket.
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
        _normalise(
            self,
            max_seq_len=_integer("EngineConfig.max_seq_len", self.max_seq_len, low=2, at_most=_MAX_TOKENS),
            seed=_integer("EngineConfig.seed", self.seed, low=0, high=_MAX_SEED),
        )
        _require_choice("EngineConfig.dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))
        _require_choice("EngineConfig.attention_backend", self.attention_backend, ("native", "vanilla"))
        if not isinstance(self.device, str) or not re.fullmatch(_DEVICE, self.device):
            is_spelled = isinstance(self.device, str) and re.fullmatch(_DEVICE, self.device.lower())
            hint = f"use {self.device.lower()!r}" if is_spelled else ""
            fields.refuse(ConfigError, "EngineConfig.device", "'auto', 'cpu', 'cuda' or 'cuda:N'", self.device, hint)
        _require_flags(self, "overlap", "torch_compile")
        self._check_groups()

    def _check_groups(self) -> None:
        groups = {"scheduler": SchedulerConfig, "kv_cache": KVCacheConfig, "cuda_graph": CudaGraphConfig}
        for name, kind in groups.items():
            if not isinstance(getattr(self, name), kind):
                message = f"EngineConfig.{name} must be a {kind.__name__}, got {shown(getattr(self, name))}"
                raise ConfigError(message)
        scheduler = self.scheduler
        for field, limit, larger in (
            ("batch_sizes", "max_batch_size", "sizes"),
            ("prefill_num_tokens", "max_num_tokens", "ones"),
            ("draft_lens", "draft_len", "ones"),
        ):
            given, most = getattr(self.cuda_graph, field), getattr(scheduler, limit)
            if given and given[-1] > most:
                message = (
                    f"CudaGraphConfig.{field} must not exceed SchedulerConfig.{limit}={most}, got {shown(given)}; "
                    f"drop the larger {larger} or raise {limit}"
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
    def num_slots(self) -> int:
        """Sequence slots: one for each request of a step, and one for each draft length's padding dummy."""
        return self.scheduler.max_batch_size + 1 + len(self.cuda_graph.draft_lens)

    @property
    def guess_len(self) -> int:
        """Tokens of each request's guess that the device keeps: with overlap it picks the next drafts itself."""
        return self.max_seq_len if self.overlap and self.scheduler.draft_len else 0

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
        for name, low, high, hint in (
            ("max_tokens", 1, None, ""),
            ("top_k", 1, None, "use None to keep every token"),
            ("seed", 0, _MAX_SEED, ""),
            ("logprobs", 0, None, ""),
        ):
            value = getattr(self, name)
            if value is not None or name == "max_tokens":
                value = fields.integer(
                    f"SamplingParams.{name}", value, low=low, high=high, refusal=RequestError, hint=hint
                )
                _normalise(self, **{name: value})
        for name, high, low_open in (
            ("temperature", math.inf, False),
            ("top_p", 1.0, True),
            ("min_p", 1.0, False),
            ("repetition_penalty", math.inf, True),
        ):
            value = getattr(self, name)
            value = fields.number(f"SamplingParams.{name}", value, 0.0, high, refusal=RequestError, low_open=low_open)
            _normalise(self, **{name: value})
        fields.flag("SamplingParams.ignore_eos", self.ignore_eos, refusal=RequestError)
        self._check_stops()

    def _check_stops(self) -> None:
        given = (self.stop,) if isinstance(self.stop, str) else self.stop
        is_id = isinstance(given, int) and not isinstance(given, bool)
        hint = f"the end at a token is stop_token_ids=({shown(given)},)" if is_id else ""
        stop = fields.items("SamplingParams.stop", given, "strings", refusal=RequestError, hint=hint)
        if not all(isinstance(text, str) and text for text in stop):
            message = f"SamplingParams.stop must hold non-empty strings, got {shown(stop)}"
            raise RequestError(message)
        one = self.stop_token_ids
        hint = f"use ({shown(one)},)" if isinstance(one, int) and not isinstance(one, bool) else ""
        ids = fields.items("SamplingParams.stop_token_ids", one, "token ids", refusal=RequestError, hint=hint)
        field = "SamplingParams.stop_token_ids[{}]"
        ids = tuple(fields.integer(field.format(i), value, low=0, refusal=RequestError) for i, value in enumerate(ids))
        _normalise(self, stop=stop, stop_token_ids=ids)

    @property
    def is_greedy(self) -> bool:
        """Whether argmax of the raw logits decides (so that the GREEDY sampler suffices)."""
        return self.temperature == 0.0 and self.repetition_penalty == 1.0

"""Footprint: the bytes that an engine is about to take, in parts, so that what does not fit is refused beforehand.

A pool that does not fit would otherwise end in the allocator's own words or, on a CPU that promises more memory than
it has, in the death of the process minutes later. The parts are estimates from above of what ``model_engine.py``
allocates once, and of the largest step's activations. Does not: allocate, or count weights (they are there already)
and graph pools (they reuse what a step's activations took).
"""

import contextlib
import dataclasses
from collections.abc import Generator, Sequence

import torch

from engine.config import EngineConfig
from engine.cuda_graphs.buckets import buckets_of
from engine.device import DeviceSpec, free_memory
from engine.errors import ConfigError
from engine.fields import bytes_in_words, cut
from engine.kv_cache.storage import KVStorage
from engine.models.config import ModelConfig

_TABLE_COPIES_ON_CUDA = 2  # the table, and the rows on their way into it
_TABLE_COPIES_ON_CPU = 5  # those, two staging mirrors, and the host's own
_INT32, _INT64, _FLOAT32 = 4, 8, 4


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One group of tensors. field: what makes it smaller, with its present value. on_host: whatever the device is."""

    name: str
    num_bytes: int
    field: str
    on_host: bool = False


def footprint(config: EngineConfig, model: ModelConfig, spec: DeviceSpec, *, num_blocks: int) -> tuple[Part, ...]:
    """List the parts. num_blocks: of the pool, those of the dummies included."""
    cache, limits = config.kv_cache, config.scheduler
    buckets = buckets_of(config)
    rows, slots = limits.max_num_tokens, config.num_slots
    scored = min(rows, limits.max_batch_size * (1 + limits.draft_len)) + 1  # rows with logits
    block = _bytes_per_block(cache.tokens_per_block, model, spec)
    blocks = -(-config.max_seq_len // cache.tokens_per_block)  # of the longest sequence
    keys = sum(map(sum, buckets.values())) * len(config.cuda_graph.sample_modes)
    table_rows = limits.max_batch_size + keys  # one metadata object eagerly, one for each key
    draft_rows = sum([K * sum(sizes) for K, sizes in buckets.items()]) * len(config.cuda_graph.sample_modes)
    copies = _TABLE_COPIES_ON_CUDA if spec.is_cuda else _TABLE_COPIES_ON_CPU
    width = 4 * model.hidden_size + 2 * model.query_size + 2 * model.kv_size + 3 * model.intermediate_size
    pool_field = f"KVCacheConfig.num_blocks={cache.num_blocks}"
    if cache.num_blocks is None:
        pool_field = f"EngineConfig.max_seq_len={config.max_seq_len}"
        if spec.is_cuda:
            pool_field = f"KVCacheConfig.memory_fraction={cache.memory_fraction}"
    host_field = f"KVCacheConfig.host_blocks={cache.host_blocks}"
    chain_rows = max(config.cuda_graph.prefill_num_tokens, default=0)  # of the statics that prefill chains share
    chain_width = model.query_size + model.hidden_size
    gathered = limits.max_batch_size * blocks * cache.tokens_per_block * 2 * model.kv_size * spec.dtype.itemsize
    batch_field = f"SchedulerConfig.max_batch_size={limits.max_batch_size}"
    return (
        # a sink block, a byte of ledger a block, and a block of staging where there is a host tier
        Part("the KV pool", (num_blocks + 1) * (block + 1) + min(1, cache.host_blocks) * block, pool_field),
        Part("the host's KV pool", cache.host_blocks * block, host_field, on_host=True),
        # five lengths a row of the tables, and for each of its drafts the sequence that it belongs to
        Part("block tables", (table_rows * (blocks + 5) + draft_rows) * _INT32 * copies, batch_field),
        Part("gathered keys and values", 0 if spec.is_cuda else gathered, batch_field),  # of one layer
        Part(
            "sampling",
            scored * model.vocab_size * 2 * _FLOAT32
            + slots * (model.vocab_size + 8 * _INT64 + (4 + limits.draft_len + config.guess_len) * _INT32)
            + model.vocab_size * _INT64,
            batch_field,
        ),
        Part(
            "the rows of a step",
            rows * (width * spec.dtype.itemsize + 4 * _INT32 * copies) + chain_rows * chain_width * spec.dtype.itemsize,
            f"SchedulerConfig.max_num_tokens={rows}",
        ),
    )


def size_kv_cache(config: EngineConfig, model: ModelConfig, spec: DeviceSpec) -> int:
    """Return the blocks that requests may use; the padding dummy's block comes on top.

    Without num_blocks: as many as max_batch_size sequences of max_seq_len can use, cut to what memory allows
    (CUDA: memory_fraction of what is free; CPU: a quarter of what is free).
    Raises: ConfigError when one sequence of max_seq_len would not fit.
    """
    cache = config.kv_cache
    per_sequence = -(-config.max_seq_len // cache.tokens_per_block)
    bytes_per_block = _bytes_per_block(cache.tokens_per_block, model, spec)
    share = cache.memory_fraction if spec.is_cuda else 0.25
    affordable = int(free_memory(spec) * share) // bytes_per_block
    num_blocks = cache.num_blocks or min(config.scheduler.max_batch_size * per_sequence, affordable)
    if num_blocks < per_sequence:
        holds = num_blocks * cache.tokens_per_block
        instead = f"EngineConfig(max_seq_len={holds}) or less" if holds > 1 else "free some memory"
        message = (
            f"the KV pool must hold one sequence of max_seq_len={config.max_seq_len}, which needs {per_sequence} "
            f"blocks of {cache.tokens_per_block} tokens, got {num_blocks}; set "
            f"KVCacheConfig(num_blocks={per_sequence}) or {instead}"
        )
        raise ConfigError(message)
    return num_blocks


def _bytes_per_block(tokens_per_block: int, model: ModelConfig, spec: DeviceSpec) -> int:
    return KVStorage.bytes_per_block(
        num_layers=model.num_layers,
        tokens_per_block=tokens_per_block,
        num_kv_heads=model.num_kv_heads,
        head_size=model.head_size,
        dtype=spec.dtype,
    )


def require_memory(parts: Sequence[Part], spec: DeviceSpec) -> None:
    """Refuse what does not fit into the memory that is free now. Raises: ConfigError, which names the largest part."""
    if spec.is_cuda:
        host = DeviceSpec(torch.device("cpu"), spec.dtype, is_cuda=False)
        require_memory([part for part in parts if part.on_host], host)
        parts = [part for part in parts if not part.on_host]
    needed, free = sum(part.num_bytes for part in parts), free_memory(spec)
    if needed > free:
        largest = max(parts, key=lambda part: part.num_bytes)
        share = f"{bytes_in_words(largest.num_bytes)} of it for {largest.name}"
        message = (
            f"the engine needs {bytes_in_words(needed)} on {spec.torch_device} ({share}), and {bytes_in_words(free)} "
            f"are free; lower {largest.field}"
        )
        raise ConfigError(message)


@contextlib.contextmanager
def naming_lack_of_memory(spec: DeviceSpec) -> Generator[None]:
    """Name what to lower when an allocation fails all the same: others took memory, or the process has a limit.

    Raises: ConfigError.
    """
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        is_lack = isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
        if not is_lack:
            raise
        free = bytes_in_words(free_memory(spec))
        message = (
            f"memory ran out on {spec.torch_device} while the engine was built, {free} are free now ({cut(error)}); "
            f"lower SchedulerConfig.max_batch_size, EngineConfig.max_seq_len or KVCacheConfig.num_blocks"
        )
        raise ConfigError(message) from error

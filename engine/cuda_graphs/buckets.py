"""Buckets: the batch sizes that get a graph, and what is wrong with a list of them. Pure and torch-free.

Fine steps where one dummy row is a large part of the batch, coarse steps where it is not. Without padding only an
exact hit takes a graph, so every small size is listed. ``bucket_findings`` is the config doctor: it compares the
buckets with the batches that a step can hold, and names each batch size that would run eagerly with the fix.

Does not: choose a bucket for a step (``select.py``) or capture. Source: the default lists and the filter of
TensorRT-LLM's graph configuration; the batch limit is always included, upstream stops at 128 unless told, and pads
only when asked to (its enable_padding is off by default, ours is on).
"""

import dataclasses
import enum
from collections.abc import Sequence

from engine.config import CudaGraphConfig, EngineConfig


def default_batch_sizes(max_batch_size: int, *, padding: bool) -> tuple[int, ...]:
    """List the batch sizes up to the limit, ascending; the limit is always the last."""
    if padding:
        sizes = [1, 2, 4, *range(8, 129, 8), *range(192, max_batch_size + 1, 64)]
    else:
        powers = [2**n for n in range(8, max_batch_size.bit_length())]
        sizes = [*range(1, 32), 32, 64, 128, *powers]
    return (*[size for size in sizes if size < max_batch_size], max_batch_size)


def resolve_batch_sizes(
    config: CudaGraphConfig, *, max_batch_size: int, max_num_tokens: int, tokens_per_request: int = 1
) -> tuple[int, ...]:
    """List the buckets of an engine: the configured or default sizes, cut to what a step can hold.

    Sizes above the cap are dropped. With padding on, the first of them becomes the cap, so that the largest
    batches still have a graph to be padded to.
    Units: requests; ``tokens_per_request`` rows of each (1 + draft length).
    """
    if not config.enabled:
        return ()
    sizes = config.batch_sizes or default_batch_sizes(max_batch_size, padding=config.enable_padding)
    cap = min(max_batch_size, max_num_tokens // tokens_per_request)
    return _cut(sizes, cap, padding=config.enable_padding)


def resolve_buckets(config: CudaGraphConfig, *, max_batch_size: int, max_num_tokens: int) -> dict[int, tuple[int, ...]]:
    """List the buckets of an engine by draft length: without drafts, and those of ``draft_lens``, ascending.

    A request that verifies K drafts has 1 + K rows, so the sizes of K are cut to what max_num_tokens then holds.
    """
    limits = {"max_batch_size": max_batch_size, "max_num_tokens": max_num_tokens}
    return {
        draft_len: resolve_batch_sizes(config, **limits, tokens_per_request=1 + draft_len)
        for draft_len in (0, *config.draft_lens)
    }


def buckets_of(config: EngineConfig) -> dict[int, tuple[int, ...]]:
    """List the buckets of an engine's whole configuration, by draft length."""
    limits = config.scheduler
    return resolve_buckets(
        config.cuda_graph, max_batch_size=limits.max_batch_size, max_num_tokens=limits.max_num_tokens
    )


def _cut(sizes: Sequence[int], cap: int, *, padding: bool) -> tuple[int, ...]:
    kept = tuple(size for size in sizes if size <= cap)
    is_cut = len(kept) < len(sizes)
    if is_cut and padding and cap > 0 and cap not in kept:
        kept = (*kept, cap)
    return kept


class FindingKind(enum.StrEnum):
    """What can be wrong with buckets."""

    BUCKET_ABOVE_BATCH_LIMIT = "BUCKET_ABOVE_BATCH_LIMIT"
    BUCKET_ABOVE_TOKEN_BUDGET = "BUCKET_ABOVE_TOKEN_BUDGET"
    SIZE_BETWEEN_BUCKETS = "SIZE_BETWEEN_BUCKETS"
    SIZE_ABOVE_LARGEST_BUCKET = "SIZE_ABOVE_LARGEST_BUCKET"
    MAXIMUM_IS_NO_BUCKET = "MAXIMUM_IS_NO_BUCKET"
    PREFILL_ABOVE_TOKEN_BUDGET = "PREFILL_ABOVE_TOKEN_BUDGET"
    DRAFTS_ABOVE_TOKEN_BUDGET = "DRAFTS_ABOVE_TOKEN_BUDGET"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with the buckets. sizes: the buckets or batch sizes that it is about, ascending."""

    kind: FindingKind
    sentence: str
    fix: str
    sizes: tuple[int, ...]


def runs_text(sizes: Sequence[int]) -> str:
    """Write ascending numbers as runs: 3, 5 to 7."""
    parts: list[str] = []
    start = 0
    for at, size in enumerate(sizes):
        if at + 1 < len(sizes) and sizes[at + 1] == size + 1:
            continue
        parts.append(str(size) if at == start else f"{sizes[start]} to {size}")
        start = at + 1
    return ", ".join(parts)


def bucket_findings(
    config: CudaGraphConfig, *, max_batch_size: int, max_num_tokens: int, tokens_per_request: int = 1
) -> tuple[Finding, ...]:
    """Compare the buckets with the batches that a step can hold; empty when all of those have a graph.

    Each batch size that would run eagerly is in exactly one finding. Graphs that are off have no findings.
    Units: as ``resolve_batch_sizes``. Order: buckets that are too large, sizes without one, prefill, drafts. A batch
    size that has a graph without drafts has one with them too, as long as a step can hold it.
    """
    if not config.enabled:
        return ()
    by_tokens = max_num_tokens // tokens_per_request
    cap = min(max_batch_size, by_tokens)
    wanted = config.batch_sizes or default_batch_sizes(max_batch_size, padding=config.enable_padding)
    buckets = _cut(wanted, cap, padding=config.enable_padding)
    findings: list[Finding] = []
    if config.batch_sizes is not None:
        instead = f"write {cap} in their place in" if cap in buckets and cap not in wanted else "drop them from"
        findings += _too_large(wanted, max_batch_size=max_batch_size, by_tokens=by_tokens, instead=instead)
    findings += _uncovered(buckets, cap, padding=config.enable_padding)
    prefill = tuple(size for size in config.prefill_num_tokens if size > max_num_tokens)
    if prefill:
        sentence = f"no step has more than max_num_tokens={max_num_tokens} rows: no step uses prefill buckets "
        fix = f"drop them from CudaGraphConfig.prefill_num_tokens, or raise max_num_tokens to {prefill[-1]}"
        findings.append(Finding(FindingKind.PREFILL_ABOVE_TOKEN_BUDGET, sentence + runs_text(prefill), fix, prefill))
    drafts = tuple(draft_len for draft_len in config.draft_lens if 1 + draft_len > max_num_tokens)
    if drafts:
        sentence = f"no step has more than max_num_tokens={max_num_tokens} rows: no request verifies at once "
        fix = f"drop them from CudaGraphConfig.draft_lens, or raise max_num_tokens to {drafts[-1] + 1}"
        kind = FindingKind.DRAFTS_ABOVE_TOKEN_BUDGET
        findings.append(Finding(kind, f"{sentence}{runs_text(drafts)} drafts", fix, drafts))
    return tuple(findings)


def _too_large(sizes: Sequence[int], *, max_batch_size: int, by_tokens: int, instead: str) -> list[Finding]:
    """Find buckets that no step can fill. instead: what to do with them, short of raising the limit."""
    found: list[Finding] = []
    above_batch = tuple(size for size in sizes if size > max_batch_size)
    if above_batch:
        sentence = f"no step holds more than max_batch_size={max_batch_size} requests, and there are buckets for "
        fix = f"{instead} CudaGraphConfig.batch_sizes, or raise SchedulerConfig.max_batch_size to {above_batch[-1]}"
        kind = FindingKind.BUCKET_ABOVE_BATCH_LIMIT
        found.append(Finding(kind, sentence + runs_text(above_batch), fix, above_batch))
    above_tokens = tuple(size for size in sizes if by_tokens < size <= max_batch_size)
    if above_tokens:
        sentence = f"max_num_tokens has room for {by_tokens} requests a step, and there are buckets for "
        fix = f"{instead} CudaGraphConfig.batch_sizes, or raise SchedulerConfig.max_num_tokens"
        kind = FindingKind.BUCKET_ABOVE_TOKEN_BUDGET
        found.append(Finding(kind, sentence + runs_text(above_tokens), fix, above_tokens))
    return found


def _uncovered(buckets: tuple[int, ...], cap: int, *, padding: bool) -> list[Finding]:
    """Find batch sizes that a step can have and no graph can run."""
    largest = buckets[-1] if buckets else 0
    between = () if padding else tuple(size for size in range(1, largest) if size not in buckets)
    above = tuple(range(largest + 1, cap))
    found: list[Finding] = []
    if between:
        sentence = f"padding is off and there is no exact bucket for {runs_text(between)}: such batches run eagerly"
        fix = "set CudaGraphConfig(enable_padding=True), or add these sizes to CudaGraphConfig.batch_sizes"
        found.append(Finding(FindingKind.SIZE_BETWEEN_BUCKETS, sentence, fix, between))
    if above:
        sentence = f"batches of {runs_text(above)} are above the largest bucket, {largest}: they run eagerly"
        fix = f"add {cap} to CudaGraphConfig.batch_sizes, to which they are padded"
        if not padding:
            fix = "add these sizes to CudaGraphConfig.batch_sizes"
        found.append(Finding(FindingKind.SIZE_ABOVE_LARGEST_BUCKET, sentence, fix, above))
    if cap > largest:
        sentence = (
            f"the largest batch that a step can hold, {cap}, is no bucket: under full load every step runs eagerly"
        )
        fix = f"add {cap} to CudaGraphConfig.batch_sizes, or lower SchedulerConfig.max_batch_size to {max(largest, 1)}"
        found.append(Finding(FindingKind.MAXIMUM_IS_NO_BUCKET, sentence, fix, (cap,)))
    return found

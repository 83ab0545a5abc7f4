"""The stepper's header: what does not change while stepping, and what the config doctor found in the bucket list.

Model, device, limits, decode and prefill buckets, warm-up, the ten stages. The findings travel as ``(id, arguments)``
like everything that the stepper says; their words are here.

Does not: encode steps (``frames.py``), or examine buckets (``engine/cuda_graphs/buckets.py`` does).
"""

import re
from typing import Any, Final

from engine.config import CudaGraphConfig
from engine.cuda_graphs.buckets import bucket_findings, runs_text
from engine.errors import ConfigError
from lab.trace import Trace, TraceHeader
from lab.widgets.stages import other_facts, stage_facts

Json = dict[str, Any]

FINDING_WORDS: Final[dict[str, tuple[str, str]]] = {
    "finding.BUCKET_ABOVE_BATCH_LIMIT": (
        "No step holds {sizes} requests: max_batch_size is smaller. Drop these buckets or raise it.",
        "没有步骤能容纳 {sizes} 个请求：max_batch_size 更小。去掉这些桶，或调高它。",
    ),
    "finding.BUCKET_ABOVE_TOKEN_BUDGET": (
        "max_num_tokens has no room for {sizes} requests. Drop these buckets or raise it.",
        "max_num_tokens 容不下 {sizes} 个请求。去掉这些桶，或调高它。",
    ),
    "finding.SIZE_BETWEEN_BUCKETS": (
        "Padding is off and no bucket is exactly {sizes}: these run eagerly. Set enable_padding=True or add them.",
        "填充已关闭，没有恰好为 {sizes} 的桶：这样的批次以 eager 运行。设置 enable_padding=True，或加入它们。",
    ),
    "finding.SIZE_ABOVE_LARGEST_BUCKET": (
        "Batches of {sizes} are above the largest bucket and run eagerly.",
        "{sizes} 个请求的批次超过最大的桶，以 eager 运行。",
    ),
    "finding.MAXIMUM_IS_NO_BUCKET": (
        "The largest batch that a step can hold, {sizes}, is no bucket: add it to batch_sizes.",
        "一步能容纳的最大批次 {sizes} 不是桶：请加入 batch_sizes。",
    ),
    "finding.PREFILL_ABOVE_TOKEN_BUDGET": (
        "No step has {sizes} rows: max_num_tokens is smaller. Drop these prefill buckets or raise it.",
        "没有步骤有 {sizes} 行：max_num_tokens 更小。去掉这些预填充桶，或调高它。",
    ),
    "finding.DRAFTS_ABOVE_TOKEN_BUDGET": (
        "No step has rows for {sizes} drafts of a request: max_num_tokens is smaller. Drop these from draft_lens.",
        "没有步骤容得下一个请求的 {sizes} 个草稿：max_num_tokens 更小。从 draft_lens 中去掉它们。",
    ),
}


def encode_header(trace: Trace) -> Json:
    """Return what does not change while stepping, as plain JSON values."""
    header = trace.header
    captures = [
        {
            "key": c.key,
            "batch": _number_of("batch", c.key),
            "drafts": _number_of("draft", c.key) or 0,
            "bytes": c.num_bytes,
            "seconds": c.seconds,
        }
        for c in header.warmup.captures
    ]
    return {
        "model": header.model.name,
        "device": f"{header.device.device} {header.device.dtype}",
        "simulated": header.device.simulated,
        "buckets": list(header.buckets),
        "prefill": list(_group(header, "cuda_graph").get("prefill_num_tokens") or ()),
        "findings": find_bucket_problems(header),
        "limits": {
            "blocks": _num_blocks(trace),
            "tokens_per_block": int(_group(header, "kv_cache").get("tokens_per_block") or 0),
            "host": 0,
        },
        "warmup": captures,
        "warmup_seconds": header.warmup.seconds,
        "stages": stage_facts(),
        "other_ways": other_facts(),
    }


def find_bucket_problems(header: TraceHeader) -> list[tuple[str, Json]]:
    """Examine the recorded bucket list; a configuration of another version, or none, has no findings."""
    graphs, limits = _group(header, "cuda_graph"), _group(header, "scheduler")
    try:
        found = bucket_findings(
            CudaGraphConfig(**graphs),
            max_batch_size=limits["max_batch_size"],
            max_num_tokens=limits["max_num_tokens"],
        )
    except (ConfigError, KeyError, TypeError):
        return []
    return [(f"finding.{finding.kind.value}", {"sizes": runs_text(finding.sizes)}) for finding in found]


def _group(header: TraceHeader, name: str) -> Json:
    group: Any = header.config.get(name)
    return dict(group) if isinstance(group, dict) else {}


def _number_of(name: str, key: str) -> int | None:
    found = re.search(rf"{name} (\d+)", key)
    return int(found[1]) if found else None


def _num_blocks(trace: Trace) -> int:
    """Return the size of the pool: as the ledger says, or, of an old trace, as the first step shows it.

    That is what is free, held by the step, and the padding dummy's.
    """
    if not len(trace.steps):
        return 0
    first = trace.steps[0]
    if first.reservation.ledger is not None:
        return first.reservation.ledger.num_blocks
    held = {block for blocks in first.metadata.block_tables for block in blocks}
    num_dummy_blocks = 1 if trace.header.buckets and not first.path.num_padding else 0
    return max(first.reservation.num_free_blocks + len(held) + num_dummy_blocks, max(held, default=-1) + 1)

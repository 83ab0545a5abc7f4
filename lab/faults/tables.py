"""Faults of the block tables and of what lies in the KV pool. All run on the vanilla backend, whose code they vary.

Does not: run them (``runs.py``). Source: each fault names the bug or rule it is modelled on.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Generator
from typing import Any, Final

import torch

from engine import model_engine
from engine.attention.interface import AttentionStep, MetadataCapacity, SteadyStep
from engine.attention.paged import PagedMetadata
from engine.attention.vanilla import VanillaMetadata
from engine.cuda_graphs.dummies import WARM_UP_DUMMY_ID
from engine.llm import LLM
from lab.faults.fault import THREE, Fault, Joining, Workload, part, small_config, swapped

_NARROW: Final = 4  # columns of a captured table that is too narrow
_VANILLA: Final = small_config(attention_backend="vanilla")
_LAST_BLOCK_TAKEN: Final = (Joining("xyz!?"), Joining("abc"), Joining("once upon a ti"))  # of 14, by the third one


@contextlib.contextmanager
def _minus_one_as_slot() -> Generator[None]:
    """Give padding rows no KV, mark their slot with -1, and compute block and offset from it as for any slot."""
    prepare = part(PagedMetadata, "prepare")

    def prepare_without_padding(self: Any, step: AttentionStep) -> None:
        params = step.kv_cache_params
        pairs = zip(step.request_ids, params.num_cached_tokens_per_seq, strict=True)
        cached = tuple(-1 if request_id > WARM_UP_DUMMY_ID else count for request_id, count in pairs)
        params = dataclasses.replace(params, num_cached_tokens_per_seq=cached)
        prepare(self, dataclasses.replace(step, kv_cache_params=params))

    with swapped(PagedMetadata, "prepare", prepare_without_padding), swapped(VanillaMetadata, "_write", _write_by_slot):
        yield


def _write_by_slot(
    metadata: Any, key_blocks: torch.Tensor, value_blocks: torch.Tensor, *step: torch.Tensor
) -> torch.Tensor:
    """Scatter rows to their slots in a pool without a sink; -1 // I and -1 % I are the last block's last token.

    step: key [N, G, D], value [N, G, D], position_ids [N] -> which rows are live [N].
    """
    key, value, positions = step
    rows, size = positions.shape[0], metadata.capacity.tokens_per_block
    sequence = metadata.row_to_sequence[:rows]
    live = (metadata.row_ids[:rows] < metadata.query_start[-1]) & (positions < metadata.kv_lens[sequence])
    column = torch.div(positions, size, rounding_mode="floor")
    slot = metadata.block_table[sequence, column] * size + torch.remainder(positions, size)
    slot = slot.masked_fill(~live, -1)
    block, offset = torch.div(slot, size, rounding_mode="floor"), torch.remainder(slot, size)
    key_blocks[:, :-1][:, block, offset] = key.transpose(0, 1)
    value_blocks[:, :-1][:, block, offset] = value.transpose(0, 1)
    return live


def _narrow_graphs() -> contextlib.AbstractContextManager[None]:
    """Capture with tables as wide as the dummies need, not as wide as a sequence may become."""

    def make(**sizes: Any) -> MetadataCapacity:
        if sizes["is_cuda_graph"]:
            sizes["max_blocks_per_seq"] = _NARROW
        return MetadataCapacity(**sizes)

    return swapped(model_engine, "MetadataCapacity", make)


def _write_wider() -> contextlib.AbstractContextManager[None]:
    """Lay a table that is too wide row after row into the captured memory, each row as long as it needs to be."""
    prepare = part(PagedMetadata, "prepare")

    def prepare_wider(self: Any, step: AttentionStep) -> None:
        S, W = self.block_table.shape
        tables, wide = step.block_tables, max(map(len, step.block_tables))
        prepare(self, dataclasses.replace(step, block_tables=tuple(table[:W] for table in tables)))
        if wide > W:
            laid = torch.zeros(S * wide, dtype=torch.int32)
            for row, table in enumerate(tables):
                laid[row * wide : row * wide + len(table)] = torch.tensor(table, dtype=torch.int32)
            self._stream.copy_(self.block_table, laid[: S * W].view(S, W))

    return swapped(PagedMetadata, "prepare", prepare_wider)


@contextlib.contextmanager
def _keeping_old_columns() -> Generator[None]:
    """Write a sequence's table when it is new, and overlook that it grew."""
    prepare, advance = part(PagedMetadata, "prepare"), part(PagedMetadata, "advance")
    written: dict[Any, dict[int, tuple[int, ...]]] = {}  # by metadata object and row

    def keep_rows(metadata: Any, tables: dict[int, tuple[int, ...]], write: Callable[[], None]) -> None:
        known = written.setdefault(metadata, {})
        grown = [row for row, table in tables.items() if known.get(row) and _has_grown(known[row], table)]
        before = metadata.block_table[grown].clone()
        write()
        for row, old in zip(grown, before, strict=True):
            metadata._stream.copy_(metadata.block_table[row], old)
        known.update(tables)

    def prepare_keeping(self: Any, step: AttentionStep) -> None:
        keep_rows(self, dict(enumerate(step.block_tables)), lambda: prepare(self, step))

    def advance_keeping(self: Any, step: SteadyStep) -> None:
        changed = dict(zip(step.changed_rows, step.changed_tables, strict=True))
        keep_rows(self, changed, lambda: advance(self, step))

    with swapped(PagedMetadata, "prepare", prepare_keeping), swapped(PagedMetadata, "advance", advance_keeping):
        yield


def _has_grown(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    return len(new) > len(old) and new[: len(old)] == old


def _spoil_pool(llm: LLM) -> None:
    """Leave NaN in every block, as a warm-up with odd inputs may."""
    runner = part(part(llm, "_model_engine"), "_runner")
    runner._parts.eager_metadata.storage.blocks.fill_(float("nan"))


def _attend_by_factor(
    metadata: Any,
    sequences: slice,
    query: torch.Tensor,
    visible: torch.Tensor,
    *,
    key_blocks: torch.Tensor,
    value_blocks: torch.Tensor,
) -> torch.Tensor:
    """Attend as the backend does, but hide what a row must not see by a factor 0: 0 times NaN is NaN.

    Query [n, t, H, D], visible [n, t, W * I] -> [n * t, H, D].
    """
    table, (n, t, H, D), G = metadata.block_table[sequences], query.shape, key_blocks.shape[0]
    keys = key_blocks[:, table].flatten(2, 3).permute(1, 0, 2, 3).repeat_interleave(H // G, 1)  # [n, H, W * I, D]
    values = value_blocks[:, table].flatten(2, 3).permute(1, 0, 2, 3).repeat_interleave(H // G, 1)
    scores = torch.matmul(query.transpose(1, 2).float(), keys.float().transpose(2, 3)) * D**-0.5
    weights = torch.softmax(scores.masked_fill(~visible.unsqueeze(1), float("-inf")), -1) * visible.unsqueeze(1)
    return torch.matmul(weights, values.float()).transpose(1, 2).reshape(n * t, H, D).to(query.dtype)


TABLE_FAULTS: Final = (
    Fault(
        name="slot-minus-one-as-index",
        explanation=(
            "Padding rows carry slot -1 for 'write nowhere'. A kernel that does not test for it divides: -1 is the "
            "last token of the last block, and each padded step overwrites it."
        ),
        rule="A sentinel is safe only where it is tested; send what must not be written to memory that nobody reads.",
        source="vllm-project/vllm issue 43810: slot -1 went through floor division and overwrote the last KV slot",
        workload=Workload(_LAST_BLOCK_TAKEN, small_config(num_blocks=14, attention_backend="vanilla")),
        patch=_minus_one_as_slot,
    ),
    Fault(
        name="block-table-wider-than-captured",
        explanation=(
            "The graph was captured over a narrow block table. A longer sequence needs one more column, the rows are "
            "written further apart, and the graph, which knows the old row length, reads other requests' blocks."
        ),
        rule="Allocate a captured table at its largest width; a row length is baked in like an address.",
        source="NVIDIA/TensorRT-LLM PR 15556: a graph replayed with another number of pages than it was captured with",
        workload=Workload(THREE, _VANILLA),
        patch=_narrow_graphs,
        lift=_write_wider,
    ),
    Fault(
        name="stale-block-table-column",
        explanation=(
            "A sequence gets a new block and its row of the table is not written again. The new column still says "
            "block 0, and every request that grows stores its tokens there, over the others'."
        ),
        rule="A table row is stale the moment its sequence gets a block: compare tables, not requests.",
        source="GeeeekExplorer/nano-vllm issue 258 and vllm-project/vllm issue 8068: bugs of slot mapping",
        workload=Workload(
            (Joining("abcdef"), Joining("xyz")), small_config(batch_sizes=(2,), attention_backend="vanilla")
        ),
        patch=_keeping_old_columns,
    ),
    Fault(
        name="nan-in-unused-block",
        explanation=(
            "Blocks that nobody wrote hold NaN. Attention hides them by multiplying their values with 0, and 0 times "
            "NaN is NaN: every logit of the row is lost."
        ),
        rule="Mask by replacing, never by multiplying, and scrub the pool after warm-up.",
        source="NVIDIA/TensorRT-LLM PRs 6868 and 7439: NaN text from what warm-up had left in the KV cache",
        workload=Workload(THREE, _VANILLA),
        patch=lambda: swapped(VanillaMetadata, "_attend_group", _attend_by_factor),
        start=_spoil_pool,
    ),
)

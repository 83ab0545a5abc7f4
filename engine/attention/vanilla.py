"""The vanilla backend: paged attention in plain tensor operations. The oracle, and the one to read.

Sequences with the same number of rows are computed together. For each group the whole width of the block table is
gathered, whatever the lengths are, and what lies beyond a row's position is masked by comparing device tensors:
shapes depend on the step's row counts only, which are constants of a graph key, so the code can be captured.
Masked means replaced (``masked_fill``), for scores and for values: a stale NaN times zero would be NaN.

Does not: try to be fast (see ``native.py``): it copies every reserved block of every sequence in every layer.
Source: own; TensorRT-LLM's vanilla backend reads only the first block of each sequence and is no paged reference.
"""

import itertools

import torch

from engine.attention.interface import AttentionBackend, AttentionStep, MetadataCapacity
from engine.attention.paged import PagedMetadata
from engine.device import DeviceSpec, Stream
from engine.kv_cache.storage import KVStorage


class VanillaMetadata(PagedMetadata):
    """The step for the vanilla backend: ``PagedMetadata`` and two constant ramps to compare with."""

    def __init__(self, storage: KVStorage, capacity: MetadataCapacity, *, spec: DeviceSpec, stream: Stream) -> None:
        super().__init__(storage, capacity, spec=spec, stream=stream)
        width = capacity.max_blocks_per_seq * capacity.tokens_per_block
        self.kv_slots = torch.arange(width, dtype=torch.int32, device=spec.torch_device)
        self.row_ids = torch.arange(capacity.max_num_tokens, dtype=torch.int32, device=spec.torch_device)
        self._groups = _equal_groups(self._seq_lens)

    def prepare(self, step: AttentionStep) -> None:
        """Write the step into the tensors and note which sequences have equally many rows.

        Raises: CapacityError when the step exceeds the capacity.
        """
        super().prepare(step)
        groups = _equal_groups(step.seq_lens)
        if groups != self._groups:  # in stream order: a forward that still waits must see the groups of its own step
            self._stream.launch(lambda: setattr(self, "_groups", groups))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name every device tensor that a graph may read."""
        return {**super().tensors(), "kv_slots": self.kv_slots, "row_ids": self.row_ids}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        position_ids: torch.Tensor,
    ) -> torch.Tensor:
        """Write this step's keys and values, then attend group by group.

        Shapes: query [N, H, D], key and value [N, G, D], position_ids [N] int32 -> [N, H, D].
        """
        key_blocks, value_blocks = self.storage.layer(layer)
        live = self._write(key_blocks, value_blocks, key, value, position_ids)
        outputs: list[torch.Tensor] = []
        row = 0
        for first, count, rows in self._groups:
            span = slice(row, row + count * rows)
            outputs.append(
                self._attend_group(
                    slice(first, first + count),
                    query[span].unflatten(0, (count, rows)),
                    self._visible(position_ids[span], live[span]).unflatten(0, (count, rows)),
                    key_blocks=key_blocks,
                    value_blocks=value_blocks,
                )
            )
            row += count * rows
        if row < query.shape[0]:  # rows of padding tokens belong to no sequence
            outputs.append(query[row:].new_zeros(query.shape[0] - row, *query.shape[1:]))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _write(
        self,
        key_blocks: torch.Tensor,
        value_blocks: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        positions: torch.Tensor,
    ) -> torch.Tensor:
        """Scatter rows to (table[position // I], position % I); rows that are not live go to the sink. [N] bool."""
        rows, size = positions.shape[0], self.capacity.tokens_per_block
        sequence = self.row_to_sequence[:rows]
        live = (self.row_ids[:rows] < self.query_start[-1]) & (positions < self.kv_lens[sequence])
        column = torch.div(positions, size, rounding_mode="floor").clamp(0, self.capacity.max_blocks_per_seq - 1)
        block = self.block_table[sequence, column].masked_fill(~live, self.storage.sink_block)
        offset = torch.remainder(positions, size)
        key_blocks[:, block, offset] = key.transpose(0, 1)
        value_blocks[:, block, offset] = value.transpose(0, 1)
        return live

    def _visible(self, positions: torch.Tensor, live: torch.Tensor) -> torch.Tensor:
        """Which KV slots each row sees: 0 to its position; a row that is not live sees none. [rows, W * I]."""
        return (self.kv_slots <= positions.unsqueeze(1)) & live.unsqueeze(1)

    def _attend_group(
        self,
        sequences: slice,
        query: torch.Tensor,
        visible: torch.Tensor,
        *,
        key_blocks: torch.Tensor,
        value_blocks: torch.Tensor,
    ) -> torch.Tensor:
        """Attend for n sequences of t rows each. Query [n, t, H, D], visible [n, t, W * I] -> [n * t, H, D]."""
        table = self.block_table[sequences]
        written = (self.kv_slots < self.kv_lens[sequences].unsqueeze(1)).unsqueeze(-1)  # [n, W * I, 1]
        keys = key_blocks[:, table].flatten(2, 3)  # [G, n, W * I, D]
        values = value_blocks[:, table].flatten(2, 3).masked_fill(~written, 0.0)
        n, t, H, D = query.shape
        G = keys.shape[0]
        grouped = query.unflatten(2, (G, H // G)).permute(2, 0, 3, 1, 4)  # [G, n, H/G, t, D]
        grouped = grouped.reshape(G, n, (H // G) * t, D)
        scores = torch.matmul(grouped.float(), keys.float().transpose(2, 3)) * D**-0.5
        hidden = ~visible.unsqueeze(1)  # [n, 1, t, W * I], the same for every head
        scores = scores.unflatten(2, (H // G, t)).masked_fill(hidden, float("-inf"))
        weights = torch.softmax(scores, dim=-1).masked_fill(hidden, 0.0)  # a row that sees nothing: zeros, not NaN
        out = torch.matmul(weights.flatten(2, 3), values.float()).to(query.dtype)
        return out.unflatten(2, (H // G, t)).permute(1, 3, 0, 2, 4).reshape(n * t, H, D)


class VanillaBackend(AttentionBackend):
    """Makes vanilla metadata. Runs on any device."""

    name = "vanilla"

    def __init__(self, *, spec: DeviceSpec, stream: Stream) -> None:
        self._spec = spec
        self._stream = stream

    def make_metadata(self, storage: KVStorage, capacity: MetadataCapacity) -> VanillaMetadata:
        """Allocate a metadata object. Valid: as long as the storage."""
        return VanillaMetadata(storage, capacity, spec=self._spec, stream=self._stream)


def _equal_groups(seq_lens: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """List runs of neighbouring sequences with equally many rows: (first sequence, sequences, rows each)."""
    groups: list[tuple[int, int, int]] = []
    first = 0
    for rows, run in itertools.groupby(seq_lens):
        count = len(list(run))
        if rows:
            groups.append((first, count, rows))
        first += count
    return tuple(groups)

"""The native backend: one fused op a layer, a CPU kernel over contiguous blocks or Triton kernels on CUDA.

Does not: contain the kernels (``ops/paged_attention_cpu.py``, ``ops/triton/paged_attention.py``); it hands the
step's device tensors to the op, which is the same for both devices.
Source: own.
"""

import torch

from engine.attention.interface import AttentionBackend, MetadataCapacity, Rotary
from engine.attention.paged import PagedMetadata
from engine.device import DeviceSpec, Stream
from engine.kv_cache.storage import KVStorage
from engine.ops.paged_attention import paged_attention_
from engine.ops.rotary_attention import rotary_attention_


class NativeMetadata(PagedMetadata):
    """The step for the native backend: ``PagedMetadata`` and the op's scratch memory."""

    def __init__(
        self,
        storage: KVStorage,
        capacity: MetadataCapacity,
        *,
        spec: DeviceSpec,
        stream: Stream,
        scratch: torch.Tensor,
    ) -> None:
        super().__init__(storage, capacity, spec=spec, stream=stream)
        self.scratch = scratch
        self._is_cuda = spec.is_cuda

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name every device tensor that a graph may read."""
        return {**super().tensors(), "scratch": self.scratch}

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        position_ids: torch.Tensor,
    ) -> torch.Tensor:
        """Write this step's keys and values and attend, in one op.

        Shapes: query [N, H, D], key and value [N, G, D], position_ids [N] int32 -> [N, H, D].
        """
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        key_blocks, value_blocks = self.storage.layer(layer)
        paged_attention_(
            out,
            query,
            key,
            value,
            position_ids,
            key_blocks=key_blocks,
            value_blocks=value_blocks,
            scratch=self.scratch,
            step_table=self.step_table,
            kv_lens=self.kv_lens,
            block_table=self.block_table,
            row_to_sequence=self.row_to_sequence,
            query_start=self.query_start,
        )
        return out

    def takes_qkv(self, num_rows: int) -> bool:
        """On CUDA, when every sequence has one row."""
        return self._is_cuda and len(self._seq_lens) == num_rows and all(count == 1 for count in self._seq_lens)

    def attend_qkv(self, layer: int, qkv: torch.Tensor, rotary: Rotary, position_ids: torch.Tensor) -> torch.Tensor:
        """Norm, rotate, write and attend in one op. Shapes: qkv [N, (H + 2G) D], position_ids [N] int32 -> [N, H D]."""
        key_blocks, value_blocks = self.storage.layer(layer)
        G, D = key_blocks.shape[0], key_blocks.shape[3]
        out = qkv.new_empty(qkv.shape[0], qkv.shape[1] - 2 * G * D)
        rotary_attention_(
            out.view(qkv.shape[0], -1, D),
            qkv,
            position_ids,
            cos=rotary.cos,
            signed_sin=rotary.signed_sin,
            gain=rotary.gain,
            eps=rotary.eps,
            key_blocks=key_blocks,
            value_blocks=value_blocks,
            kv_lens=self.kv_lens,
            block_table=self.block_table,
        )
        return out


class NativeBackend(AttentionBackend):
    """Makes native metadata; all objects share one scratch, since only one forward runs at a time."""

    name = "native"

    def __init__(self, *, spec: DeviceSpec, stream: Stream) -> None:
        self._spec = spec
        self._stream = stream
        self._scratch: dict[int, torch.Tensor] = {}
        if spec.is_cuda:
            from engine.ops.triton.paged_attention import register

            register()

    def make_metadata(self, storage: KVStorage, capacity: MetadataCapacity) -> NativeMetadata:
        """Allocate a metadata object. Valid: as long as the storage."""
        scratch = self._scratch_for(storage, capacity)
        return NativeMetadata(storage, capacity, spec=self._spec, stream=self._stream, scratch=scratch)

    def _scratch_for(self, storage: KVStorage, capacity: MetadataCapacity) -> torch.Tensor:
        """Scratch that holds keys and values of the whole table; the CUDA kernels need none."""
        tokens = capacity.max_num_sequences * capacity.max_blocks_per_seq * capacity.tokens_per_block
        cells = 1 if self._spec.is_cuda else 2 * tokens * storage.num_kv_heads * storage.head_size
        if cells not in self._scratch:
            held = [scratch for size, scratch in self._scratch.items() if size >= cells]
            if held:
                return held[0]
            self._scratch[cells] = torch.empty(cells, dtype=storage.blocks.dtype, device=self._spec.torch_device)
        return self._scratch[cells]

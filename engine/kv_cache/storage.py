"""The KV tensors: one pool of blocks in every layer, read and written by both attention backends.

Layout, per layer, keys and values apart: [G, J + 1, I, D], head-major. A run of neighbouring blocks is then, for
every head, one contiguous stretch of tokens, so that a CPU kernel reads it as a view and a block of one head is one
contiguous tile for a GPU kernel. Measured against [J, I, G, D] on two cores at 8 x 500 tokens: 0.72 ms a layer
instead of 1.17 ms (see LOG.md).

The last block is the *sink*: no pool hands it out, nobody reads it. A fixed-shape write sends the rows that must
not be written (padding tokens) there, so that they never meet a block that matters.

Behind it, if asked for, lies the host tier: [num_host_blocks, L, 2, G, I, D], pinned on CUDA. A host block is one
contiguous stretch, so that it moves in one asynchronous transfer; the device gathers and scatters between a block's
many stretches and one staging block. Every copy runs on the step's stream, so the staging block and a block
that has a new owner already are rewritten only after whoever read them before, without the host waiting.

Zero-initialised: a masked score times an uninitialised NaN would still be NaN. On CPU the pool is an anonymous
mapping that the kernel hands out, zeroed, one small page at a time: memory is resident only once it was written.

Does not: decide who owns which block (``kv_cache/manager.py``).
Source: the paged pools of vLLM and TensorRT-LLM; the head-major order is FlashInfer's "HND" with the head outermost.
"""

import math
import mmap
from collections.abc import Iterable
from typing import Self

import torch

from engine.device import DeviceSpec, Stream
from engine.errors import CapacityError
from engine.kv_cache.copies import BlockCopy, CopyKind


def _zeros_on_host(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Map zero pages that become resident on first write; huge pages would make 2 MiB resident per touched block."""
    region = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        region.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(region, dtype=dtype).view(shape)


class KVStorage:
    """Keys and values of all layers.

    Shapes: blocks [L, 2, G, J + 1, I, D]; index 0 of the second axis holds keys, 1 values. host_blocks
    [num_host_blocks, L, 2, G, I, D] or None. Allocated once; the address never changes. Valid: as long as any graph
    that baked the address in.
    """

    def __init__(self, blocks: torch.Tensor, host_blocks: torch.Tensor | None = None) -> None:
        self.blocks = blocks
        self.host_blocks = host_blocks
        self.num_host_blocks = 0 if host_blocks is None else host_blocks.shape[0]
        self._staging = None if host_blocks is None else torch.zeros_like(host_blocks[0], device=blocks.device)
        self.num_layers, _, self.num_kv_heads, rows, self.tokens_per_block, self.head_size = blocks.shape
        self.num_blocks = rows - 1
        self._layers = tuple((layer[0], layer[1]) for layer in blocks.unbind(0))

    @classmethod
    def allocate(
        cls,
        *,
        num_layers: int,
        num_blocks: int,
        tokens_per_block: int,
        num_kv_heads: int,
        head_size: int,
        spec: DeviceSpec,
        num_host_blocks: int = 0,
    ) -> Self:
        """Allocate the pool, zeroed, plus the sink block, and the host tier behind it."""
        shape = (num_layers, 2, num_kv_heads, num_blocks + 1, tokens_per_block, head_size)
        host_shape = (num_host_blocks, num_layers, 2, num_kv_heads, tokens_per_block, head_size)
        if not spec.is_cuda:
            host = _zeros_on_host(host_shape, spec.dtype) if num_host_blocks else None
            return cls(_zeros_on_host(shape, spec.dtype), host)
        host = torch.zeros(host_shape, dtype=spec.dtype, pin_memory=True) if num_host_blocks else None
        return cls(torch.zeros(shape, dtype=spec.dtype, device=spec.torch_device), host)

    @staticmethod
    def bytes_per_block(
        *, num_layers: int, tokens_per_block: int, num_kv_heads: int, head_size: int, dtype: torch.dtype
    ) -> int:
        """Bytes that one block costs, keys and values of all layers together."""
        return 2 * num_layers * num_kv_heads * tokens_per_block * head_size * dtype.itemsize

    @property
    def sink_block(self) -> int:
        """Index of the block that swallows writes of rows which must not be written."""
        return self.num_blocks

    @property
    def nbytes(self) -> int:
        """Bytes of the whole pool, the sink included."""
        return self.blocks.numel() * self.blocks.element_size()

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one layer: views of shape [G, J + 1, I, D]."""
        return self._layers[index]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name the device memory, for the registry and the strict replay check."""
        return {"kv_blocks": self.blocks}

    def run_copies(self, copies: Iterable[BlockCopy], stream: Stream) -> None:
        """Hand the copies to the stream in their order, each in all layers; call it before the step's forward.

        Raises: CapacityError when a block id or a token count lies outside its pool; earlier copies are under way then.
        """
        for copy in copies:
            self._require_inside(copy)
            kept = slice(copy.num_tokens)
            if copy.kind is CopyKind.DEVICE:
                stream.copy_(self.blocks[:, :, :, copy.target, kept], self.blocks[:, :, :, copy.source, kept])
                continue
            host, staging = self.host_blocks, self._staging
            assert host is not None
            assert staging is not None
            if copy.kind is CopyKind.OFFLOAD:
                stream.copy_(staging, self.blocks[:, :, :, copy.source])
                stream.copy_(host[copy.target], staging)
            else:
                stream.copy_(staging, host[copy.source])
                stream.copy_(self.blocks[:, :, :, copy.target, kept], staging[:, :, :, kept])

    def _require_inside(self, copy: BlockCopy) -> None:
        num_sources = self.num_host_blocks if copy.kind is CopyKind.ONBOARD else self.num_blocks
        num_targets = self.num_host_blocks if copy.kind is CopyKind.OFFLOAD else self.num_blocks
        ids_fit = 0 <= copy.source < num_sources and 0 <= copy.target < num_targets
        if not ids_fit or not 0 <= copy.num_tokens <= self.tokens_per_block:
            message = (
                f"a block copy ({copy.kind.value}) needs a source below {num_sources}, a target below {num_targets} "
                f"and at most {self.tokens_per_block} tokens, got source={copy.source} target={copy.target} "
                f"num_tokens={copy.num_tokens}"
            )
            raise CapacityError(message)

    def check(self) -> None:
        """Recompute what the layout promises: one allocation, heads outermost, tokens of a head contiguous."""
        assert self.blocks.is_contiguous()
        assert len(self._layers) == self.num_layers
        block = self.tokens_per_block * self.head_size
        for keys, values in self._layers:
            for side in (keys, values):
                assert side.shape == (self.num_kv_heads, self.num_blocks + 1, self.tokens_per_block, self.head_size)
                assert side.stride() == ((self.num_blocks + 1) * block, block, self.head_size, 1)
        low, high = self.blocks.data_ptr(), self.blocks.data_ptr() + self.nbytes
        assert all(low <= side.data_ptr() < high for pair in self._layers for side in pair)

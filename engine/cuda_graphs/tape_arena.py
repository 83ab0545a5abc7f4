"""The tape's memory pool: chunks that never move, from which captures take and to which dying tensors give back.

It behaves as CUDA's caching allocator does under capture. A tensor handed out owns its span; when the last reference
to it dies, within the capture or later, the next allocation may take the same bytes. So one pool serves all graphs,
the largest sizes it, and an output that nobody holds strongly is overwritten sooner or later.

Recorded operations must not keep memory alive, so they hold *aliases*: tensors over the same bytes that own nothing.

Does not: know operations or graphs. Source: torch's CUDACachingAllocator, with first fit in place of its bins.
"""

import bisect
import weakref
from collections.abc import Sequence

import numpy as np
import torch

ALIGNMENT = 64  # bytes: a cache line, and what torch's own CPU allocator gives
GRANULE = 2 * 2**20  # bytes: what a new chunk is rounded up to


def poison_value(dtype: torch.dtype) -> float | int | bool:
    """Return the value that no computation is meant to see: NaN, True, 255 or half the smallest integer."""
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    if dtype is torch.bool:
        return True
    info = torch.iinfo(dtype)
    return info.max if info.min == 0 else info.min // 2


class _Chunk:
    """One allocation, cut into spans; the free ones are kept ascending and merged."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = torch.empty(nbytes, dtype=torch.uint8)
        self.array = self.bytes.numpy()
        self.address = self.bytes.data_ptr()
        self.free = [(0, nbytes)]  # (offset, size), ascending, never touching
        self.live: dict[int, tuple[int, int, torch.dtype]] = {}  # offset -> (size, epoch, dtype)
        self.typed: dict[torch.dtype, torch.Tensor] = {torch.uint8: self.bytes}

    def view_as(self, dtype: torch.dtype) -> torch.Tensor:
        if dtype not in self.typed:
            self.typed[dtype] = self.bytes.view(dtype)
        return self.typed[dtype]

    def take(self, nbytes: int) -> int | None:
        for at, (offset, size) in enumerate(self.free):
            if size >= nbytes:
                self.free[at : at + 1] = [(offset + nbytes, size - nbytes)] if size > nbytes else []
                return offset
        return None

    def give_back(self, offset: int) -> None:
        size, _epoch, _dtype = self.live.pop(offset)
        at = bisect.bisect_left(self.free, (offset, 0))
        if at < len(self.free) and self.free[at][0] == offset + size:
            size += self.free.pop(at)[1]
        if at > 0 and sum(self.free[at - 1]) == offset:
            at -= 1
            before = self.free.pop(at)
            offset, size = before[0], before[1] + size
        self.free.insert(at, (offset, size))


class TapeArena:
    """The pool of one tape backend. nbytes: bytes of its chunks."""

    def __init__(self) -> None:
        """Hold nothing; the first capture sizes the pool."""
        self.nbytes = 0
        self._chunks: list[_Chunk] = []  # ascending by address
        self._addresses: list[int] = []
        self._epoch = 0

    def begin(self) -> None:
        """Start a capture: what is allocated from here on is told apart by ``poison_fresh``."""
        self._epoch += 1

    def allocate(self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Hand out a tensor that owns its span. Its contents are whatever lies there."""
        reach = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if all(size) else 0
        nbytes = max(ALIGNMENT, -(-reach * dtype.itemsize // ALIGNMENT) * ALIGNMENT)
        chunk, offset = self._take(nbytes)
        chunk.live[offset] = (nbytes, self._epoch, dtype)
        owner: np.ndarray = chunk.array[offset : offset + nbytes]  # lives exactly as long as the tensor's storage
        weakref.finalize(owner, chunk.give_back, offset).atexit = False
        return torch.from_numpy(owner).view(dtype).as_strided(tuple(size), tuple(stride))

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies in the pool."""
        return self._chunk_of(tensor) is not None

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor over the same bytes that owns nothing; memory outside the pool is returned as it is."""
        chunk = self._chunk_of(tensor)
        if chunk is None:
            return tensor
        start = (tensor.data_ptr() - chunk.address) // tensor.element_size()
        return chunk.view_as(tensor.dtype).as_strided(tensor.size(), tensor.stride(), start)

    def poison_fresh(self) -> None:
        """Poison whatever this capture allocated and somebody still holds: it was never computed."""
        for chunk in self._chunks:
            for offset, (size, epoch, dtype) in chunk.live.items():
                if epoch == self._epoch:
                    span = chunk.bytes[offset : offset + size].view(dtype)
                    span.fill_(poison_value(dtype))

    def check(self) -> None:
        """Recompute that free and live spans tile every chunk, and that no two free ones touch."""
        assert self.nbytes == sum(chunk.bytes.numel() for chunk in self._chunks)
        for chunk in self._chunks:
            end, was_free = 0, False
            spans = [(offset, size, True) for offset, size in chunk.free]
            spans += [(offset, size, False) for offset, (size, _epoch, _dtype) in chunk.live.items()]
            for offset, size, is_free in sorted(spans):
                assert offset == end, f"span at {offset}, the one before ends at {end}"
                assert not (is_free and was_free), f"two free spans touch at {offset}"
                end, was_free = offset + size, is_free
            assert end == chunk.bytes.numel()

    def _take(self, nbytes: int) -> tuple[_Chunk, int]:
        for chunk in self._chunks:
            offset = chunk.take(nbytes)
            if offset is not None:
                return chunk, offset
        chunk = _Chunk(-(-nbytes // GRANULE) * GRANULE)
        at = bisect.bisect(self._addresses, chunk.address)
        self._chunks.insert(at, chunk)
        self._addresses.insert(at, chunk.address)
        self.nbytes += chunk.bytes.numel()
        offset = chunk.take(nbytes)
        assert offset == 0
        return chunk, offset

    def _chunk_of(self, tensor: torch.Tensor) -> _Chunk | None:
        address = tensor.untyped_storage().data_ptr()
        at = bisect.bisect(self._addresses, address) - 1
        if at < 0 or address >= self._addresses[at] + self._chunks[at].bytes.numel():
            return None
        return self._chunks[at]

"""A small paged world: sequences with known keys and values, their blocks, and a dense float32 reference."""

import dataclasses
import random

import torch

from engine.attention.interface import (
    AttentionBackend,
    AttentionMetadata,
    AttentionStep,
    KVCacheParams,
    MetadataCapacity,
)
from engine.attention.native import NativeBackend
from engine.attention.vanilla import VanillaBackend
from engine.device import DeviceSpec, Stream, make_stream
from engine.kv_cache.storage import KVStorage

CPU = DeviceSpec(torch.device("cpu"), torch.float32, is_cuda=False)


def make_backend(name: str, spec: DeviceSpec = CPU, stream: Stream | None = None) -> AttentionBackend:
    kinds = {"vanilla": VanillaBackend, "native": NativeBackend}
    return kinds[name](spec=spec, stream=stream or make_stream(spec))


@dataclasses.dataclass
class Sequence:
    """What one sequence holds: blocks, and every key and value written so far ([T, G, D])."""

    blocks: tuple[int, ...]
    keys: torch.Tensor
    values: torch.Tensor

    @property
    def length(self) -> int:
        return self.keys.shape[0]


class World:
    """Sequences over one storage; ``run`` takes new rows for each and compares with the dense answer."""

    def __init__(self, backend, *, heads=4, kv_heads=2, head_size=8, blocks=40, size=4, width=8, layers=2, spec=CPU):
        self.spec, self.H, self.G, self.D, self.I, self.W = spec, heads, kv_heads, head_size, size, width
        self.storage = KVStorage.allocate(
            num_layers=layers,
            num_blocks=blocks,
            tokens_per_block=size,
            num_kv_heads=kv_heads,
            head_size=head_size,
            spec=spec,
        )
        self.backend = make_backend(backend, spec) if isinstance(backend, str) else backend
        self.generator = torch.Generator().manual_seed(7)
        self.sequences: list[Sequence] = []

    def random(self, *shape: int) -> torch.Tensor:
        rows = torch.randn(*shape, generator=self.generator)
        return rows.to(self.spec.torch_device, self.spec.dtype)

    def add(self, blocks: tuple[int, ...]) -> Sequence:
        empty = self.random(0, self.G, self.D)
        self.sequences.append(Sequence(blocks, empty, empty))
        return self.sequences[-1]

    def scatter(self, count: int, seed: int = 0) -> None:
        """Add sequences that share the pool in shuffled order."""
        ids = list(range(self.storage.num_blocks))
        random.Random(seed).shuffle(ids)
        for index in range(count):
            self.add(tuple(ids[index * self.W : (index + 1) * self.W]))

    def metadata(self, *, sequences: int = 8, rows: int = 64, is_cuda_graph: bool = False) -> AttentionMetadata:
        capacity = MetadataCapacity(sequences, rows, self.W, self.I, is_cuda_graph=is_cuda_graph)
        return self.backend.make_metadata(self.storage, capacity)

    def step(self, row_counts: list[int], *, tables: list[tuple[int, ...]] | None = None) -> AttentionStep:
        tables = tables or [s.blocks for s in self.sequences[: len(row_counts)]]
        cached = tuple(s.length for s in self.sequences[: len(row_counts)])
        return AttentionStep(
            request_ids=tuple(range(len(row_counts))),
            seq_lens=tuple(row_counts),
            prompt_lens=tuple(row_counts),
            block_tables=tuple(tables),
            kv_cache_params=KVCacheParams(use_cache=True, num_cached_tokens_per_seq=cached),
            num_contexts=0,
            num_tokens=sum(row_counts),
        )

    def rows(self, row_counts: list[int]):
        """New rows: query, key, value, positions; the sequences grow by them."""
        N = sum(row_counts)
        query, key, value = (
            self.random(N, self.H, self.D),
            self.random(N, self.G, self.D),
            self.random(N, self.G, self.D),
        )
        positions, at = [], 0
        for sequence, count in zip(self.sequences, row_counts, strict=False):
            positions += range(sequence.length, sequence.length + count)
            sequence.keys = torch.cat((sequence.keys, key[at : at + count]))
            sequence.values = torch.cat((sequence.values, value[at : at + count]))
            at += count
        return query, key, value, torch.tensor(positions, dtype=torch.int32, device=self.spec.torch_device)

    def dense(self, query: torch.Tensor, positions: torch.Tensor, row_counts: list[int]) -> torch.Tensor:
        """Attention over the remembered keys and values in float32, row by row."""
        out, row = [], 0
        for sequence, count in zip(self.sequences, row_counts, strict=False):
            repeat = self.H // self.G
            keys = sequence.keys.float().repeat_interleave(repeat, dim=1)
            values = sequence.values.float().repeat_interleave(repeat, dim=1)
            for _ in range(count):
                seen = int(positions[row]) + 1
                scores = torch.einsum("hd,thd->ht", query[row].float(), keys[:seen]) * self.D**-0.5
                out.append(torch.einsum("ht,thd->hd", scores.softmax(-1), values[:seen]))
                row += 1
        return torch.stack(out)

    def run(self, metadata: AttentionMetadata, row_counts: list[int], layer: int = 1):
        """One step; returns (got, expected)."""
        step = self.step(row_counts)
        query, key, value, positions = self.rows(row_counts)
        metadata.prepare(step)
        got = metadata.attend(layer, query, key, value, positions)
        return got.float(), self.dense(query, positions, row_counts)

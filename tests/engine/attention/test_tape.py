"""Attention on the tape: capture computes nothing, and one graph serves every length."""

import pytest
import torch

from engine.cuda_graphs.tape import TapeBackend
from engine.device import DeviceRegistry
from tests.engine.attention.paged_world import World

BACKENDS = ["vanilla", "native"]


def capture(backend):
    world = World(backend)
    world.scatter(3)
    world.run(world.metadata(), [6, 1, 3])
    metadata = world.metadata(sequences=3, rows=3, is_cuda_graph=True)
    statics = (world.random(3, 4, 8), world.random(3, 2, 8), world.random(3, 2, 8), torch.zeros(3, dtype=torch.int32))
    registry = DeviceRegistry()
    for name, tensor in {**metadata.tensors(), **{f"static{i}": t for i, t in enumerate(statics)}}.items():
        registry.register(name, tensor)
    graph = TapeBackend(registry).capture(lambda: metadata.attend(1, *statics))
    return world, metadata, statics, graph


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_tape_serves_every_length(backend):
    world, metadata, statics, graph = capture(backend)
    for _ in range(12):
        step = world.step([1, 1, 1])
        rows = world.rows([1, 1, 1])
        metadata.prepare(step)
        for static, new in zip(statics, rows, strict=True):
            static.copy_(new)
        graph.replay()
        torch.testing.assert_close(graph.outputs, world.dense(rows[0], rows[3], [1, 1, 1]), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_capture_writes_nothing(backend):
    world = World(backend)
    world.scatter(3)
    world.run(world.metadata(), [6, 1, 3])
    before = world.storage.blocks.clone()
    metadata = world.metadata(sequences=3, rows=3, is_cuda_graph=True)
    metadata.prepare(world.step([1, 1, 1]))
    statics = (world.random(3, 4, 8), world.random(3, 2, 8), world.random(3, 2, 8), torch.zeros(3, dtype=torch.int32))
    registry = DeviceRegistry()
    for name, tensor in {**metadata.tensors(), **{f"static{i}": t for i, t in enumerate(statics)}}.items():
        registry.register(name, tensor)
    TapeBackend(registry).capture(lambda: metadata.attend(1, *statics))
    assert torch.equal(world.storage.blocks, before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_replay_is_bit_equal_to_eager_on_the_same_metadata(backend):
    world, metadata, statics, graph = capture(backend)
    step = world.step([1, 1, 1])
    rows = world.rows([1, 1, 1])
    metadata.prepare(step)
    for static, new in zip(statics, rows, strict=True):
        static.copy_(new)
    eager = metadata.attend(1, *statics)
    graph.replay()
    assert torch.equal(graph.outputs, eager)

"""Attention on a GPU: Triton kernels against the vanilla backend and a dense float32 reference."""

import random

import pytest
import torch

from engine.device import DeviceSpec
from tests.engine.attention.paged_world import World

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

BACKENDS = ["vanilla", "native"]
TOLERANCE = {torch.float32: {"atol": 2e-5, "rtol": 1e-4}, torch.bfloat16: {"atol": 2e-2, "rtol": 2e-2}}


def spec(dtype):
    return DeviceSpec(torch.device("cuda", 0), dtype, is_cuda=True)


def close(got, expected, dtype):
    torch.testing.assert_close(got, expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (8, 8), (8, 1), (6, 2), (16, 2)])
@pytest.mark.parametrize("head_size", [8, 64, 80, 128])
def test_every_mix_of_chunks_and_single_rows_equals_dense_attention(backend, dtype, heads, kv_heads, head_size):
    chooser = random.Random(heads * 1000 + head_size)
    world = World(
        backend, heads=heads, kv_heads=kv_heads, head_size=head_size, blocks=64, size=16, width=16, spec=spec(dtype)
    )
    world.scatter(4)
    metadata = world.metadata(rows=256)
    for _ in range(4):
        counts = [chooser.choice([1, 1, 2, 5, 16, 17, 40]) for _ in range(4)]
        close(*world.run(metadata, counts), dtype)
        close(*world.run(metadata, [1, 1, 1, 1]), dtype)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_native_and_vanilla_agree_and_write_the_same_blocks(dtype):
    pools, results = [], []
    for backend in BACKENDS:
        world = World(backend, heads=9, kv_heads=3, head_size=64, blocks=64, size=16, width=16, spec=spec(dtype))
        world.scatter(3)
        metadata = world.metadata(rows=256)
        results.append([world.run(metadata, counts)[0] for counts in ([33, 7, 1], [1, 1, 1], [1, 1, 1])])
        pools.append(world.storage.blocks[:, :, :, : world.storage.num_blocks])
    assert torch.equal(*pools)
    for a, b in zip(*results, strict=True):
        close(a, b, dtype)


@pytest.mark.parametrize("backend", BACKENDS)
def test_stale_nan_in_blocks_never_reaches_a_row(backend):
    world = World(backend, spec=spec(torch.float32))
    world.storage.blocks.fill_(float("nan"))
    world.scatter(3)
    metadata = world.metadata()
    close(*world.run(metadata, [5, 2, 1]), torch.float32)
    close(*world.run(metadata, [1, 1, 1]), torch.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_padding_tokens_and_empty_sequences_give_zeros_and_write_nothing(backend):
    world = World(backend, spec=spec(torch.float32))
    world.add((0, 1))
    metadata = world.metadata()
    step = world.step([3])
    query, key, value, positions = world.rows([3])
    metadata.prepare(step)
    pad = [torch.cat((rows, torch.full_like(rows[:2], 9.0))) for rows in (query, key, value)]
    got = metadata.attend(0, *pad, torch.cat((positions, torch.zeros_like(positions[:2]))))
    close(got[:3], world.dense(query, positions, [3]), torch.float32)
    assert not got[3:].any()
    assert not (world.storage.layer(0)[0][:, : world.storage.num_blocks] == 9.0).any()
    empty = world.metadata(sequences=2, rows=2, is_cuda_graph=True)
    got = empty.attend(1, query[:2], key[:2], value[:2], torch.zeros_like(positions[:2]))
    assert not got.any()
    assert not world.storage.layer(1)[0][:, : world.storage.num_blocks].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_captured_graph_serves_every_length(backend):
    world = World(backend, heads=6, kv_heads=2, head_size=64, blocks=64, size=16, width=16, spec=spec(torch.bfloat16))
    world.scatter(4)
    close(*world.run(world.metadata(rows=128), [30, 2, 15, 64]), torch.bfloat16)
    metadata = world.metadata(sequences=4, rows=4, is_cuda_graph=True)
    statics = world.random(4, 6, 64), world.random(4, 2, 64), world.random(4, 2, 64)
    positions = torch.zeros(4, dtype=torch.int32, device="cuda")
    metadata.attend(1, *statics, positions)  # kv_lens are 0: compiles, writes nothing
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        got = metadata.attend(1, *statics, positions)
    for _ in range(20):
        step = world.step([1, 1, 1, 1])
        rows = world.rows([1, 1, 1, 1])
        metadata.prepare(step)
        for static, new in zip((*statics, positions), rows, strict=True):
            static.copy_(new)
        graph.replay()
        close(got.float(), world.dense(rows[0], rows[3], [1, 1, 1, 1]), torch.bfloat16)


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_linear_and_the_mlp_equal_their_references_in_bfloat16(rows):
    from engine.ops.gated_mlp import gated_mlp, gated_mlp_reference
    from engine.ops.linear import linear, linear_reference

    torch.manual_seed(0)
    x, residual = (torch.randn(rows, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    gate_up = torch.randn(256, 64, device="cuda", dtype=torch.bfloat16) * 0.1
    down = torch.randn(64, 128, device="cuda", dtype=torch.bfloat16) * 0.1
    close(linear(x, gate_up), linear_reference(x, gate_up), torch.bfloat16)
    close(gated_mlp(x, gate_up, down, residual), gated_mlp_reference(x, gate_up, down, residual), torch.bfloat16)

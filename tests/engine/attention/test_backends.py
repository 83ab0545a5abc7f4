import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.device import LaggedStream
from engine.ops import paged_attention_cpu
from tests.engine.attention.paged_world import CPU, World

BACKENDS = ["vanilla", "native"]


def close(got, expected):
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25, deadline=None)
@given(
    counts=st.lists(st.lists(st.integers(1, 7), min_size=3, max_size=3), min_size=1, max_size=4),
    heads=st.sampled_from([(4, 4), (4, 2), (6, 2), (3, 1)]),
    seed=st.integers(0, 3),
)
def test_every_mix_of_chunks_and_single_rows_equals_dense_attention(backend, counts, heads, seed):
    world = World(backend, heads=heads[0], kv_heads=heads[1])
    world.scatter(3, seed)
    metadata = world.metadata()
    for row_counts in counts:
        close(*world.run(metadata, row_counts))
        metadata.check()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("blocks", ["neighbours", "scattered", "mixed"])
def test_decoding_across_block_boundaries_equals_dense_attention(backend, blocks):
    world = World(backend)
    if blocks == "scattered":
        world.scatter(4)
    else:
        for index in range(4):
            world.add(tuple(range(index * 8, index * 8 + 8)))
        if blocks == "mixed":
            world.sequences[1].blocks = (8, 9, 33, 35, 32, 36, 37, 38)
    metadata = world.metadata()
    close(*world.run(metadata, [5, 1, 9, 3]))
    for _ in range(13):
        close(*world.run(metadata, [1, 1, 1, 1]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_layer_is_written_alone(backend):
    world = World(backend)
    world.scatter(2)
    world.run(world.metadata(), [4, 2], layer=1)
    assert not world.storage.layer(0)[0].any()
    assert world.storage.layer(1)[0].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_stale_nan_in_blocks_never_reaches_a_row(backend):
    world = World(backend)
    world.storage.blocks.fill_(float("nan"))
    world.scatter(3)
    metadata = world.metadata()
    close(*world.run(metadata, [5, 2, 1]))
    close(*world.run(metadata, [1, 1, 1]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sequence_without_kv_gives_zeros_and_writes_nothing(backend):
    world = World(backend)
    metadata = world.metadata(sequences=2, rows=2, is_cuda_graph=True)
    before = world.storage.blocks[..., : world.storage.num_blocks, :, :].clone()
    ones = world.random(2, 4, 8), world.random(2, 2, 8), world.random(2, 2, 8)
    got = metadata.attend(0, *ones, torch.zeros(2, dtype=torch.int32))
    assert torch.equal(got, torch.zeros_like(got))
    assert torch.equal(world.storage.blocks[..., : world.storage.num_blocks, :, :], before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_padding_tokens_write_nothing_and_give_zeros(backend):
    world = World(backend)
    world.add((0, 1))
    metadata = world.metadata()
    step = world.step([3])
    query, key, value, positions = world.rows([3])
    metadata.prepare(step)
    pad = [torch.cat((rows, torch.full((2, *rows.shape[1:]), 9.0))) for rows in (query, key, value)]
    got = metadata.attend(0, *pad, torch.cat((positions, torch.zeros(2, dtype=torch.int32))))
    close(got[:3], world.dense(query, positions, [3]))
    assert not got[3:].any()
    torch.testing.assert_close(world.storage.layer(0)[0][:, 0, :3].transpose(0, 1), key)
    assert not (world.storage.layer(0)[0][:, : world.storage.num_blocks] == 9.0).any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_bfloat16_pools_attend_within_their_precision(backend):
    world = World(backend, spec=dataclasses.replace(CPU, dtype=torch.bfloat16))
    world.storage.blocks.fill_(float("nan"))
    world.scatter(3)
    metadata = world.metadata()
    for counts in ([5, 2, 1], [1, 1, 1], [3, 1, 2]):
        got, expected = world.run(metadata, counts)
        torch.testing.assert_close(got, expected, atol=2e-2, rtol=2e-2)


def test_a_long_row_over_neighbouring_blocks_is_read_in_place(monkeypatch):
    world = World("native", size=64, width=8)
    for index in range(3):
        world.add(tuple(range(index * 8, index * 8 + 8)))
    metadata = world.metadata(rows=1200)
    close(*world.run(metadata, [400, 300, 5]))
    monkeypatch.setattr(paged_attention_cpu, "_gather", None)  # row 2 is short, so leave it out
    world.sequences.pop()
    close(*world.run(metadata, [1, 1]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("blocks", ["neighbours", "scattered"])
def test_verify_rows_and_longer_chunks_equal_dense_attention_however_long_the_sequence(backend, blocks):
    world = World(backend, heads=6, size=64, width=8)
    for index in range(4):
        ids = tuple(range(index * 8, index * 8 + 8))
        world.add(ids if blocks == "neighbours" else ids[::-1])
    world.storage.blocks.fill_(float("nan"))
    metadata = world.metadata(rows=1200)
    close(*world.run(metadata, [300, 290, 3, 40]))
    for counts in ([5, 5, 5, 5], [5, 1, 4, 16], [17, 20, 18, 5], [2, 2, 2, 2]):
        close(*world.run(metadata, counts))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("known", [6, 280])
def test_rows_behind_a_sequences_last_position_are_dead(backend, known):
    world = World(backend, size=64, width=8)
    for index in range(2):
        world.add(tuple(range(index * 8, index * 8 + 8)))
    metadata = world.metadata(rows=600)
    close(*world.run(metadata, [known, known]))
    step = dataclasses.replace(world.step([4, 4]), max_kv_lens=(known + 2, known + 9))
    query, key, value, positions = world.rows([4, 4])
    positions[2:4] = known + 2  # where a step puts them: on the limit
    before = world.storage.blocks.clone()
    metadata.prepare(step)
    got = metadata.attend(1, query, key, value, positions)
    assert metadata.kv_lens[:2].tolist() == [known + 2, known + 4]
    assert not got[2:4].any()
    block, place = divmod(known + 2, 64)
    assert torch.equal(world.storage.layer(1)[0][:, block, place], before[1, 0, :, block, place]), "nothing is written"
    expected = world.dense(query, positions, [4, 4])
    close(got[[0, 1, 4, 5, 6, 7]], expected[[0, 1, 4, 5, 6, 7]])


def test_both_backends_write_the_same_blocks():
    pools = []
    for backend in BACKENDS:
        world = World(backend)
        world.scatter(3)
        metadata = world.metadata()
        for counts in ([4, 6, 1], [1, 1, 1], [1, 1, 1]):
            world.run(metadata, counts)
        pools.append(world.storage.blocks[..., : world.storage.num_blocks, :, :])
    assert torch.equal(*pools)


@pytest.mark.parametrize("backend", BACKENDS)
def test_positions_are_device_facts(backend):
    """Correcting kv_lens and positions on the device after prepare corrects write place and attention."""
    world = World(backend)
    world.add((3, 1, 2))
    metadata = world.metadata()
    world.run(metadata, [5])
    step = world.step([1])
    query, key, value, positions = world.rows([1])
    metadata.prepare(step)
    metadata.kv_lens[:1] -= 2
    sequence = world.sequences[0]
    sequence.keys = torch.cat((sequence.keys[:3], key))
    sequence.values = torch.cat((sequence.values[:3], value))
    got = metadata.attend(1, query, key, value, positions - 2)
    close(got, world.dense(query, positions - 2, [1]))
    torch.testing.assert_close(world.storage.layer(1)[0][:, 3, 3], key[0])


def test_a_lagging_forward_sees_the_groups_of_its_own_step():
    stream = LaggedStream(50)
    world = World("vanilla")
    world.backend._stream = stream
    world.scatter(2)
    metadata = world.metadata()
    results = []
    for counts in ([3, 3], [2, 5], [1, 1]):
        step = world.step(counts)
        rows = world.rows(counts)
        metadata.prepare(step)
        expected = world.dense(rows[0], rows[3], counts)
        stream.launch(lambda rows=rows, expected=expected: results.append((metadata.attend(1, *rows), expected)))
    stream.synchronize()
    assert len(results) == 3
    for got, expected in results:
        close(got, expected)


def test_a_backend_that_takes_queries_apart_says_so_when_it_is_asked_otherwise():
    metadata = World("vanilla").metadata()
    assert not metadata.takes_qkv(1)
    with pytest.raises(AssertionError, match="takes queries, keys and values apart"):
        metadata.attend_qkv(0, None, None, None)

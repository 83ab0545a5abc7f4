"""Decode attention as one op equals rotating by torch and attending, writes the same cache, and skips dead rows."""

import pytest
import torch
from torch.nn import functional

from engine.models.config import RopeConfig
from engine.models.rope import rope_tables
from engine.ops.rotary_attention import rotary_attention_
from tests.engine.attention.paged_world import World

SIZES = {"heads": 6, "kv_heads": 2, "head_size": 8}


def tables(world):
    cos, signed_sin = rope_tables(RopeConfig(), world.D, world.W * world.I)
    return {"cos": cos, "signed_sin": signed_sin}


def fused(world, metadata, qkv, positions, gain):
    keys, values = world.storage.layer(1)
    out = torch.full((qkv.shape[0], world.H, world.D), float("nan"))
    lengths = {"kv_lens": metadata.kv_lens[: len(out)], "block_table": metadata.block_table[: len(out)]}
    blocks = {"key_blocks": keys, "value_blocks": values}
    rotary_attention_(out, qkv, positions, gain=gain, eps=1e-5, **tables(world), **blocks, **lengths)
    return out


def apart(world, metadata, qkv, positions, gain):
    heads, turning = qkv.view(len(qkv), -1, world.D), world.H + world.G
    query_key = heads[:, :turning]
    if gain is not None:
        query_key = functional.rms_norm(query_key, (world.D,), None, 1e-5) * gain
    cos, sin = (table[positions.long()].unsqueeze(1) for table in tables(world).values())
    turned = torch.cat((query_key[..., world.D // 2 :], query_key[..., : world.D // 2]), dim=-1)
    query_key = query_key * cos + turned * sin
    return metadata.attend(1, query_key[:, : world.H], query_key[:, world.H :], heads[:, turning:], positions)


@pytest.mark.parametrize("has_gain", [False, True])
def test_it_equals_rotating_by_torch_and_attending(has_gain):
    torch.manual_seed(1)
    gain = torch.randn(8, 8) if has_gain else None
    results, pools = [], []
    for run in (fused, apart):
        world = World("native", **SIZES)
        world.scatter(3)
        metadata = world.metadata()
        world.run(metadata, [5, 1, 9])
        step = world.step([1, 1, 1])
        positions = world.rows([1, 1, 1])[3]
        metadata.prepare(step)
        qkv = torch.randn(3, 10 * 8, generator=torch.Generator().manual_seed(3))
        results.append(run(world, metadata, qkv, positions, gain))
        pools.append(world.storage.blocks)
    torch.testing.assert_close(*results, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(*pools, atol=2e-5, rtol=1e-4)


def test_a_row_that_is_not_live_gives_zeros_and_writes_nothing():
    world = World("native", **SIZES)
    metadata = world.metadata(sequences=2, rows=2, is_cuda_graph=True)
    out = fused(world, metadata, torch.randn(2, 80), torch.zeros(2, dtype=torch.int32), None)
    assert not out.any()
    assert not world.storage.blocks.any()


def test_it_is_known_to_return_nothing_without_computing():
    meta = {"device": "meta"}
    blocks = {"key_blocks": torch.empty(2, 4, 4, 8, **meta), "value_blocks": torch.empty(2, 4, 4, 8, **meta)}
    lengths = {
        "kv_lens": torch.empty(3, dtype=torch.int32, **meta),
        "block_table": torch.empty(3, 2, dtype=torch.int32, **meta),
    }
    out, qkv, positions = torch.empty(3, 6, 8, **meta), torch.empty(3, 80, **meta), torch.empty(3, **meta)
    rope = {"cos": torch.empty(9, 8, **meta), "signed_sin": torch.empty(9, 8, **meta), "gain": None, "eps": 0.0}
    assert rotary_attention_(out, qkv, positions, **rope, **blocks, **lengths) is None

"""The fused segments compute what the layers compute, one row and several, biases and norms included."""

import dataclasses

import pytest
import torch

from engine.device import DeviceSpec
from engine.models.config import ModelFeatures
from engine.models.fused import FusedSegments, can_fuse
from engine.models.llama import CausalLM
from engine.models.loading.layout import weight_shapes
from engine.models.tiny import TINY_CONFIG

CPU = DeviceSpec(torch.device("cpu"), torch.float32, is_cuda=False)


def model_with(**features):
    config = dataclasses.replace(TINY_CONFIG, features=ModelFeatures(**features))
    generator = torch.Generator().manual_seed(5)
    weights = {name: torch.randn(*shape, generator=generator) * 0.2 for name, shape in weight_shapes(config).items()}
    return CausalLM(config, weights, CPU, num_positions=32)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("features", [{}, {"qkv_bias": True, "output_bias": True}])
def test_every_segment_equals_the_layers(rows, features):
    model = model_with(**features)
    fused = FusedSegments(model.embedding, model.stack, model.norm.weight, eps=model.config.rms_norm_eps)
    ids = torch.arange(rows, dtype=torch.int32)
    x, qkv = model.enter(ids)
    for ours, theirs in zip(fused.enter(ids), (x, qkv), strict=True):
        torch.testing.assert_close(ours, theirs)
    for layer in range(model.config.num_layers):
        attended = torch.randn(rows, model.config.query_size)
        ours, (x, qkv) = fused.advance(layer, attended, x), model.advance(layer, attended, x)
        torch.testing.assert_close(ours[0], x, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(ours[1], qkv, atol=2e-4, rtol=1e-4)


def test_biases_in_the_feed_forward_block_do_not_fit():
    assert can_fuse(model_with().stack)
    assert not can_fuse(model_with(mlp_bias=True).stack)

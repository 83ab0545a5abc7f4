import pytest
import torch

from engine.models.layers import GatedMLP, LayerWeights, Linear, RMSNorm
from engine.models.tiny import TINY_CONFIG, tiny_weights
from tests.engine.models.model_files import CPU


def test_a_layer_takes_its_weights_by_name_and_a_missing_one_is_an_error():
    weights = LayerWeights({"a.o.weight": torch.ones(2, 3), "a.o.bias": torch.ones(2)}, "a.", CPU)
    assert weights.take_optional("q.bias") is None
    with pytest.raises(KeyError, match=r"a\.q\.weight"):
        weights.take("q.weight")
    torch.testing.assert_close(Linear(weights, "o")(torch.ones(4, 3)), torch.full((4, 2), 4.0))


def test_norm_scales_each_row_to_unit_mean_square():
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)) * 30
    scaled = RMSNorm(torch.ones(8), 1e-6)(x)
    torch.testing.assert_close(scaled.pow(2).mean(1), torch.ones(5))
    torch.testing.assert_close(RMSNorm(torch.full((8,), 3.0), 1e-6)(x), scaled * 3)


def test_the_joined_gate_and_up_matrix_computes_both():
    weights = tiny_weights(0)
    mlp = GatedMLP(TINY_CONFIG, LayerWeights(dict(weights), "layers.0.", CPU))
    x = torch.randn(3, TINY_CONFIG.hidden_size, generator=torch.Generator().manual_seed(1))
    gate, up = weights["layers.0.gate_up.weight"].chunk(2)
    expected = (torch.sigmoid(x @ gate.T) * (x @ gate.T) * (x @ up.T)) @ weights["layers.0.down.weight"].T
    torch.testing.assert_close(mlp(x), expected, atol=1e-4, rtol=1e-4)

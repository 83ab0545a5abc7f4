import dataclasses
import json

import pytest

from engine.errors import ModelError
from engine.models.config import ModelConfig, ModelFeatures, RopeConfig, RopeScalingKind, config_from_dict
from engine.models.tiny import TINY_CONFIG


def test_a_config_survives_a_round_trip_through_json():
    config = ModelConfig(
        architecture="llama",
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_size=16,
        rms_norm_eps=1e-5,
        max_position=512,
        rope=RopeConfig(theta=5e5, kind=RopeScalingKind.LLAMA3, factor=8.0, explicit_factors=(1.0, 2.0)),
        features=ModelFeatures(tie_word_embeddings=True, qk_norm=True),
    )
    assert config_from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.tie_word_embeddings
    assert (config.query_size, config.kv_size) == (64, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "num_layers must be a positive integer, got 0"),
        ({"vocab_size": 3.5}, "vocab_size must be a positive integer, got 3.5"),
        ({"num_kv_heads": 3}, "num_heads must be a multiple of num_kv_heads .* got num_heads=4, num_kv_heads=3"),
        ({"head_size": 15}, "head_size even, got .*head_size=15"),
    ],
)
def test_sizes_that_do_not_fit_are_named(changes: dict, message: str):
    with pytest.raises(ModelError, match=message):
        dataclasses.replace(TINY_CONFIG, **changes)

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
        rope=RopeConfig(theta=5e5, kind=RopeScalingKind.LLAMA3, factor=8.0, explicit_factors=(1.0, 2.0) * 4),
        features=ModelFeatures(tie_word_embeddings=True, qk_norm=True),
    )
    assert config_from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.tie_word_embeddings
    assert (config.query_size, config.kv_size) == (64, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "num_layers must be an integer of at least 1, got 0"),
        ({"vocab_size": 3.5}, "vocab_size must be an integer of at least 1, got 3.5"),
        ({"hidden_size": 10**9}, "hidden_size must be at most 262144, got 1000000000"),
        ({"rms_norm_eps": float("nan")}, r"rms_norm_eps must be a finite number in \[0, 1\], got nan"),
        ({"rope": RopeConfig(explicit_factors=(1.0,))}, "rope factors must be 8, half a head, got 1"),
        ({"num_kv_heads": 3}, "num_heads must be a multiple of num_kv_heads .* got num_heads=4, num_kv_heads=3"),
        ({"head_size": 15}, "head_size even, got .*head_size=15"),
    ],
)
def test_sizes_that_do_not_fit_are_named(changes: dict, message: str):
    with pytest.raises(ModelError, match=message):
        dataclasses.replace(TINY_CONFIG, **changes)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"theta": 0.0}, r"rope theta must be a finite number in \(0, inf\), got 0.0"),
        ({"factor": float("inf")}, r"rope factor must be a finite number in \(0, inf\), got inf"),
        ({"original_max_position": 0}, "rope original_max_position must be an integer of at least 1, got 0"),
        ({"explicit_factors": (1.0, 0.0)}, r"rope factor 1 must be a finite number in \(0, inf\), got 0.0"),
        (
            {"kind": RopeScalingKind.LLAMA3, "low_freq_factor": 4.0},
            "rope high_freq_factor must be above low_freq_factor=4.0, got 4.0",
        ),
    ],
)
def test_a_rotation_that_would_not_be_finite_is_named(values: dict, message: str):
    with pytest.raises(ModelError, match=message):
        RopeConfig(**values)

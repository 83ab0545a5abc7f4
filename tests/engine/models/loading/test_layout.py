import dataclasses

import torch

from engine.models.config import ModelFeatures
from engine.models.loading.layout import read_weights, weight_parts, weight_shapes
from engine.models.tiny import TINY_CONFIG, tiny_weights

EVERYTHING = dataclasses.replace(
    TINY_CONFIG, features=ModelFeatures(qkv_bias=True, output_bias=True, mlp_bias=True, qk_norm=True)
)


def test_the_plan_names_exactly_the_weights_that_a_model_is_built_from():
    assert weight_shapes(TINY_CONFIG) == {name: tuple(w.shape) for name, w in tiny_weights(0).items()}


def test_parts_fill_their_rows_in_order():
    asked: list[str] = []

    def read_part(part: str, goal: torch.Tensor) -> None:
        goal.fill_(len(asked))
        asked.append(part)

    weights = dict(read_weights(EVERYTHING, torch.float32, read_part))
    assert asked == [part for parts in weight_parts(EVERYTHING).values() for part, _ in parts]
    assert len(set(asked)) == len(asked)
    first = asked.index("layers.1.q.weight")
    qkv = weights["layers.1.qkv.weight"]
    query, kv = EVERYTHING.query_size, EVERYTHING.kv_size
    assert qkv[:, 0].tolist() == [first] * query + [first + 1] * kv + [first + 2] * kv
    assert weights["layers.0.gate_up.bias"].shape == (2 * EVERYTHING.intermediate_size,)


def test_tied_models_have_no_head_of_their_own():
    tied = dataclasses.replace(TINY_CONFIG, features=ModelFeatures(tie_word_embeddings=True))
    assert "lm_head.weight" not in weight_shapes(tied)

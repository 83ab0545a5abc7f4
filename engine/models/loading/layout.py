"""The names and shapes of a model's weights, and how the parts of a file become the engine's matrices.

Files keep query, key, value, gate and up apart; the engine wants them joined. Part names: embedding, norm, lm_head,
and per layer attention_norm, q, k, v, q_norm, k_norm, o, mlp_norm, gate, up, down, each with ".weight" and perhaps
".bias". Engine names: the same with qkv for q, k, v and gate_up for gate, up, under "layers.<i>.".
Does not: know a file's own names; each reader maps them.
"""

from collections.abc import Callable, Iterator

import torch

from engine.models.config import ModelConfig

Shape = tuple[int, ...]
Parts = tuple[tuple[str, Shape], ...]
ReadPart = Callable[[str, torch.Tensor], None]  # part name, where its values go (with the shape that it must have)


def _layer_parts(config: ModelConfig) -> Iterator[tuple[str, Parts]]:
    """Each matrix of one layer: its engine name, and its parts with their shapes, in row order."""
    hidden, width, features = config.hidden_size, config.intermediate_size, config.features
    query, kv = config.query_size, config.kv_size
    yield "attention_norm.weight", (("attention_norm.weight", (hidden,)),)
    yield "qkv.weight", (("q.weight", (query, hidden)), ("k.weight", (kv, hidden)), ("v.weight", (kv, hidden)))
    if features.qkv_bias:
        yield "qkv.bias", (("q.bias", (query,)), ("k.bias", (kv,)), ("v.bias", (kv,)))
    if features.qk_norm:
        yield "q_norm.weight", (("q_norm.weight", (config.head_size,)),)
        yield "k_norm.weight", (("k_norm.weight", (config.head_size,)),)
    yield "o.weight", (("o.weight", (hidden, query)),)
    if features.output_bias:
        yield "o.bias", (("o.bias", (hidden,)),)
    yield "mlp_norm.weight", (("mlp_norm.weight", (hidden,)),)
    yield "gate_up.weight", (("gate.weight", (width, hidden)), ("up.weight", (width, hidden)))
    yield "down.weight", (("down.weight", (hidden, width)),)
    if features.mlp_bias:
        yield "gate_up.bias", (("gate.bias", (width,)), ("up.bias", (width,)))
        yield "down.bias", (("down.bias", (hidden,)),)


def weight_parts(config: ModelConfig) -> dict[str, Parts]:
    """Plan a model: each engine weight, and the parts that it is made of with their shapes, in row order.

    Order: embedding, layers, norm, head, so that of several missing parts the first is named.
    """
    embedding_shape = (config.vocab_size, config.hidden_size)
    plan: dict[str, Parts] = {"embedding.weight": (("embedding.weight", embedding_shape),)}
    for i in range(config.num_layers):
        for name, parts in _layer_parts(config):
            plan[f"layers.{i}.{name}"] = tuple((f"layers.{i}.{part}", shape) for part, shape in parts)
    plan["norm.weight"] = (("norm.weight", (config.hidden_size,)),)
    if not config.tie_word_embeddings:
        plan["lm_head.weight"] = (("lm_head.weight", embedding_shape),)
    return plan


def weight_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Give the shape of every engine weight."""
    return {
        name: (sum(shape[0] for _, shape in parts), *parts[0][1][1:]) for name, parts in weight_parts(config).items()
    }


def read_weights(config: ModelConfig, dtype: torch.dtype, read_part: ReadPart) -> Iterator[tuple[str, torch.Tensor]]:
    """Read every part straight into its rows of the weight that it belongs to; one weight at a time is made.

    Raises: whatever read_part raises for a missing or misshapen tensor.
    """
    shapes = weight_shapes(config)
    for name, parts in weight_parts(config).items():
        weight = torch.empty(shapes[name], dtype=dtype)
        start = 0
        for part, shape in parts:
            read_part(part, weight[start : start + shape[0]])
            start += shape[0]
        yield name, weight

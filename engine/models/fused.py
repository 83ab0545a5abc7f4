"""The layer stack on CUDA: what lies between two attentions, in as few launches as the number of rows allows.

The segments are those of ``llama.py``. One row is bound by launches and by how fast weights stream, so each product
norms its own input: four launches from one attention to the next. Several rows share a norm, which the launch that ends
the product before it computes beside the residual sum.

Does not: attend, embed in another way, or contain kernels (``ops/triton/products.py``). Source: own.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from engine.models.layers import DecoderLayer
from engine.ops.linear_add_norm import linear_add_norm
from engine.ops.norm_gate_up import norm_gate_up
from engine.ops.norm_linear import norm_linear


def can_fuse(layers: Sequence[DecoderLayer]) -> bool:
    """Whether the fused ops fit these layers: they know no biases in the feed-forward block."""
    return all(layer.mlp.gate_up.bias is None and layer.mlp.down.bias is None for layer in layers)


class FusedSegments:
    """The segments of one model, over the parameters of its layers."""

    def __init__(
        self, embedding: nn.Parameter, layers: Sequence[DecoderLayer], norm: nn.Parameter, *, eps: float
    ) -> None:
        """Take the weights."""
        self._embedding, self._eps = embedding, eps
        self._layers = tuple(layers)
        # The norm behind each layer: the next layer's, and the final one at the end.
        self._norms = (*(layer.attention_norm.weight for layer in layers[1:]), norm)

    def enter(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As ``CausalLM.enter``."""
        x, first = functional.embedding(input_ids, self._embedding), self._layers[0]
        qkv = first.attention.qkv
        return x, norm_linear(x, qkv.weight, qkv.bias, norm=first.attention_norm.weight, eps=self._eps)

    def advance(self, layer: int, attended: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As ``CausalLM.advance``."""
        is_last = layer + 1 == len(self._layers)
        this, following, eps = self._layers[layer], self._layers[layer if is_last else layer + 1], self._eps
        o, gate_up, down, qkv = this.attention.o, this.mlp.gate_up, this.mlp.down, following.attention.qkv
        if x.shape[0] == 1 and not is_last:
            x = norm_linear(attended, o.weight, o.bias, x)
            hidden = norm_gate_up(x, gate_up.weight, norm=this.mlp_norm.weight, eps=eps)
            x = norm_linear(hidden, down.weight, None, x)
            return x, norm_linear(x, qkv.weight, qkv.bias, norm=self._norms[layer], eps=eps)
        x, normed = linear_add_norm(attended, o.weight, o.bias, x, norm=this.mlp_norm.weight, eps=eps)
        hidden = norm_gate_up(normed, gate_up.weight)
        x, normed = linear_add_norm(hidden, down.weight, None, x, norm=self._norms[layer], eps=eps)
        return (normed, attended) if is_last else (x, norm_linear(normed, qkv.weight, qkv.bias))

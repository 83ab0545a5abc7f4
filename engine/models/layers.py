"""The parts of a decoder layer, each built whole from its weights.

Query, key and value matrices are one matrix, gate and up another: a step is bound by how often it leaves Python
and how often it reads memory. Every shape is static and nothing is read back to the host, so that a graph can
record a layer. Does not: know an architecture's name, a file format, or where keys and values are kept (attention
is the metadata's work). Source: the Llama, Qwen2 and Qwen3 architectures.
"""

import dataclasses
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from engine.attention.interface import AttentionMetadata
from engine.device import DeviceSpec
from engine.models.config import ModelConfig
from engine.ops.gated_mlp import gated_mlp
from engine.ops.linear import linear
from engine.ops.rms_norm import rms_norm


@dataclasses.dataclass(frozen=True, slots=True)
class LayerWeights:
    """Tensors of one layer (or of the whole model), found by name under a prefix, moved to the device as taken."""

    tensors: Mapping[str, torch.Tensor]
    prefix: str
    spec: DeviceSpec

    def take(self, name: str) -> torch.Tensor:
        """Give the tensor ``prefix + name`` in the device's dtype. Raises: KeyError when the loader left it out."""
        return self.tensors[self.prefix + name].to(self.spec.torch_device, self.spec.dtype)

    def take_optional(self, name: str) -> torch.Tensor | None:
        """Give the tensor, or None when the model has no such part (a bias, for instance)."""
        return self.take(name) if self.prefix + name in self.tensors else None


def frozen_parameter(tensor: torch.Tensor) -> nn.Parameter:
    """Wrap a tensor without copying it; the engine never trains."""
    return nn.Parameter(tensor, requires_grad=False)


class Linear(nn.Module):
    """y = x W^T + b (+ residual). Shapes: weight [out, in], x and residual [N, in] and [N, out] -> [N, out]."""

    def __init__(self, weights: LayerWeights, name: str) -> None:
        super().__init__()
        bias = weights.take_optional(f"{name}.bias")
        self.weight = frozen_parameter(weights.take(f"{name}.weight"))
        self.bias = None if bias is None else frozen_parameter(bias)

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """Shapes: x [N, in], residual [N, out] -> [N, out]."""
        return linear(x, self.weight, self.bias, residual)


class RMSNorm(nn.Module):
    """Scale each row to unit mean square, then by a learnt weight. Shapes: x [N, M] -> [N, M]."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.weight = frozen_parameter(weight)
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: [N, M] -> [N, M]."""
        return rms_norm(x, self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query attention: rotate, then let the metadata write KV and attend; the layer projects in and out."""

    def __init__(self, config: ModelConfig, layer: int, weights: LayerWeights) -> None:
        super().__init__()
        self.layer = layer
        self.num_heads, self.num_kv_heads, self.head_size = config.num_heads, config.num_kv_heads, config.head_size
        self.qkv = Linear(weights, "qkv")
        self.o = Linear(weights, "o")
        self.qk_norm: nn.Parameter | None = None
        self.eps = config.rms_norm_eps
        if config.features.qk_norm:
            # One row per head, so that queries and keys are normed together.
            query = weights.take("q_norm.weight").expand(self.num_heads, -1)
            key = weights.take("k_norm.weight").expand(self.num_kv_heads, -1)
            self.qk_norm = frozen_parameter(torch.cat((query, key)))

    def forward(
        self,
        qkv: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        positions: torch.Tensor,
        attn_metadata: AttentionMetadata,
    ) -> torch.Tensor:
        """Rotate, write KV, attend. Shapes: qkv [N, (H + 2G) D], rotation two of [N, 1, D] -> [N, H D]."""
        num_rotated = self.num_heads + self.num_kv_heads
        qkv = qkv.view(-1, num_rotated + self.num_kv_heads, self.head_size)
        query_key = qkv[:, :num_rotated]
        if self.qk_norm is not None:
            query_key = functional.rms_norm(query_key, (self.head_size,), None, self.eps) * self.qk_norm
        cos, signed_sin = rotation
        half = self.head_size // 2
        rotated = query_key * cos
        rotated[..., :half].addcmul_(query_key[..., half:], signed_sin[..., :half])
        rotated[..., half:].addcmul_(query_key[..., :half], signed_sin[..., half:])
        attended = attn_metadata.attend(
            self.layer, rotated[:, : self.num_heads], rotated[:, self.num_heads :], qkv[:, num_rotated:], positions
        )
        return attended.reshape(-1, self.num_heads * self.head_size)


class GatedMLP(nn.Module):
    """down(silu(gate(x)) * up(x)) (+ residual), gate and up in one matrix. Shapes: [N, M] -> [N, M]."""

    def __init__(self, config: ModelConfig, weights: LayerWeights) -> None:
        super().__init__()
        self.width = config.intermediate_size
        self.gate_up = Linear(weights, "gate_up")
        self.down = Linear(weights, "down")

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """Shapes: [N, M] -> [N, M]."""
        if self.gate_up.bias is None and self.down.bias is None:
            return gated_mlp(x, self.gate_up.weight, self.down.weight, residual)
        gate_up = self.gate_up(x)
        return self.down(functional.silu(gate_up[:, : self.width]) * gate_up[:, self.width :], residual)


class DecoderLayer(nn.Module):
    """Attention and MLP, each after a norm and added to the residual stream; cut in three at its attention.

    A graph may record ``before`` and ``after``, whose shapes depend on the number of rows alone; ``attend`` reads the
    step's metadata and may stay outside (prefill graphs are cut there).
    """

    def __init__(self, config: ModelConfig, layer: int, weights: LayerWeights) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(weights.take("attention_norm.weight"), config.rms_norm_eps)
        self.attention = Attention(config, layer, weights)
        self.mlp_norm = RMSNorm(weights.take("mlp_norm.weight"), config.rms_norm_eps)
        self.mlp = GatedMLP(config, weights)

    def before(self, x: torch.Tensor) -> torch.Tensor:
        """Norm and project. Shapes: x [N, M] -> queries, keys and values [N, (H + 2G) D]."""
        return self.attention.qkv(self.attention_norm(x))

    def attend(
        self,
        qkv: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        positions: torch.Tensor,
        attn_metadata: AttentionMetadata,
    ) -> torch.Tensor:
        """Rotate, write KV, attend. Shapes: qkv [N, (H + 2G) D] -> [N, H D]."""
        return self.attention(qkv, rotation, positions, attn_metadata)

    def after(self, attended: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Project back onto the residual x, then the MLP. Shapes: attended [N, H D], x [N, M] -> [N, M]."""
        x = self.attention.o(attended, x)
        return self.mlp(self.mlp_norm(x), x)

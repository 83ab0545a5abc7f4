"""The decoder-only model: embed, run the layers, norm; logits only for the rows that are sampled.

One class serves Llama, Qwen2 and Qwen3, whose differences are flags of ``ModelConfig``. A model may declare
``optional_inputs`` and offer ``prepare_request_inputs(batch, attn_metadata)``, which returns those that a step has;
this one needs neither. Does not: sample, schedule, or read files. Source: the Llama architecture.

The forward is a chain of segments, cut at each attention (``enter``, ``advance``), so that prefill graphs can record
the segments and leave attention out.
"""

import contextlib
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from engine.attention.interface import AttentionMetadata, Rotary
from engine.device import DeviceSpec
from engine.models.compiled import CompiledSegments, require_compiler
from engine.models.config import ModelConfig
from engine.models.fused import FusedSegments, can_fuse
from engine.models.layers import DecoderLayer, LayerWeights, Linear, RMSNorm, frozen_parameter
from engine.models.optional_input import OptionalInput
from engine.models.rope import rope_tables
from engine.ops.linear import FEWEST_PACKED_ROWS, linear, pack
from engine.ops.norm_linear import norm_linear


class CausalLM(nn.Module):
    """A decoder with its LM head.

    weights: every tensor under the names that ``loading/layout.py`` lists. num_positions: rows of the rotary tables,
    the longest sequence that will be served.
    """

    optional_inputs: tuple[OptionalInput, ...] = ()
    cos_table: torch.Tensor
    signed_sin_table: torch.Tensor

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, torch.Tensor], spec: DeviceSpec, *, num_positions: int
    ) -> None:
        super().__init__()
        self.config = config
        whole = LayerWeights(weights, "", spec)
        self.embedding = frozen_parameter(whole.take("embedding.weight"))
        self.stack = tuple(
            [DecoderLayer(config, i, LayerWeights(weights, f"layers.{i}.", spec)) for i in range(config.num_layers)]
        )
        self.layers = nn.ModuleList(self.stack)  # torch finds parameters through this one
        self.norm = RMSNorm(whole.take("norm.weight"), config.rms_norm_eps)
        self.lm_head = None if config.tie_word_embeddings else Linear(whole, "lm_head")
        cos, signed_sin = rope_tables(config.rope, config.head_size, num_positions)
        self.register_buffer("cos_table", cos.to(spec.torch_device, spec.dtype))
        self.register_buffer("signed_sin_table", signed_sin.to(spec.torch_device, spec.dtype))
        self.compiled: CompiledSegments | None = None
        self.fused: FusedSegments | None = None
        self._rotaries: tuple[Rotary, ...] = ()
        self._spec = spec
        if spec.is_cuda:
            self._use_cuda_ops()

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        attn_metadata: AttentionMetadata,
        **optional: torch.Tensor,
    ) -> torch.Tensor:
        """Run every row through every layer. optional: the declared inputs, [N] each, for the first segment.

        Shapes: input_ids [N] int32, position_ids [P, 1, N] int32 -> hidden [N, M], final norm applied.
        Capturable: no host read, no shape that depends on values.
        """
        with contextlib.nullcontext() if self.compiled is None else self.compiled.guarded():
            positions = position_ids[0, 0]
            is_rotated_there = bool(self._rotaries) and attn_metadata.takes_qkv(input_ids.shape[0])
            rotation = None if is_rotated_there else self.rotation(position_ids)
            x, qkv = self.enter(input_ids, **optional)
            for layer in range(self.config.num_layers):
                if rotation is None:
                    attended = attn_metadata.attend_qkv(layer, qkv, self._rotaries[layer], positions)
                else:
                    attended = self.stack[layer].attend(qkv, rotation, positions, attn_metadata)
                x, qkv = self.advance(layer, attended, x)
        return x

    def _use_cuda_ops(self) -> None:
        """Let the layers run as few launches: ``fused.py`` between attentions, rotation inside them where it fits."""
        eps = self.config.rms_norm_eps
        self._rotaries = tuple(
            [Rotary(self.cos_table, self.signed_sin_table, layer.attention.qk_norm, eps) for layer in self.stack]
        )
        if can_fuse(self.stack):
            self.fused = FusedSegments(self.embedding, self.stack, self.norm.weight, eps=eps)

    def rotation(self, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Select the rotary rows of a step. Shapes: position_ids [P, 1, N] int32 -> two of [N, 1, D]."""
        positions = position_ids[0, 0]
        return (
            self.cos_table.index_select(0, positions).unsqueeze(1),
            self.signed_sin_table.index_select(0, positions).unsqueeze(1),
        )

    def enter(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """First segment: embed, then up to the first attention. Shapes: [N] int32 -> x [N, M], qkv [N, (H + 2G) D]."""
        if self.compiled is not None and self.compiled.takes(input_ids.shape[0]):
            return self.compiled.enter(input_ids)
        if self.fused is not None:
            return self.fused.enter(input_ids)
        x = functional.embedding(input_ids, self.embedding)
        return x, self.stack[0].before(x)

    def advance(self, layer: int, attended: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Segment behind the attention of a layer, up to the next one.

        Shapes: attended [N, H D], x [N, M] -> x [N, M], qkv [N, (H + 2G) D]. After the last layer x is the hidden
        state, final norm applied, and qkv is attended handed back: there is no next attention.
        """
        if self.compiled is not None and self.compiled.takes(x.shape[0]):
            return self.compiled.advance(layer, attended, x)
        if self.fused is not None:
            return self.fused.advance(layer, attended, x)
        x = self.stack[layer].after(attended, x)
        if layer + 1 == self.config.num_layers:
            return self.norm(x), attended
        return x, self.stack[layer + 1].before(x)

    def compile_segments(self) -> CompiledSegments:
        """Let what lies between attentions run compiled, for the numbers of rows that warm-up compiles.

        Raises: ConfigError when the machine has no compiler for the device.
        """
        require_compiler(self._spec)
        self.compiled = CompiledSegments(self.embedding, self.stack, self.norm.weight, eps=self.config.rms_norm_eps)
        return self.compiled

    def pack_weights(self, max_decode_rows: int) -> None:
        """Give every matrix its second CPU layout if decode steps are wide enough to use it; it doubles the memory."""
        if max_decode_rows < FEWEST_PACKED_ROWS:
            return
        for module in self.modules():
            if isinstance(module, Linear):
                pack(module.weight)
        if self.lm_head is None:
            pack(self.embedding)

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Score the vocabulary. Shapes: hidden [R, M] -> [R, V] float32."""
        if self._spec.is_cuda:
            head = self.lm_head
            weight, bias = (self.embedding, None) if head is None else (head.weight, head.bias)
            return norm_linear(hidden, weight, bias, is_wide=True)
        logits = linear(hidden, self.embedding) if self.lm_head is None else self.lm_head(hidden)
        return logits.float()

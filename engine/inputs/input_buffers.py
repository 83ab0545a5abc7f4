"""Persistent input buffers of the decoder runner: allocated once, written in place, never rebound.

This is the first of three layers of storage. The graph runner's static slices are the second (their addresses are
baked into graphs), the metadata's own tensors the third. These buffers live as long as the engine; their
*contents* change every step, their addresses never do.

Does not: decide what is written (``prepare.py`` is the only writer) or know a step.
Source: TensorRT-LLM's InputBuffers and decoder runner buffers, without the beam group.
"""

import dataclasses

import torch

from engine.device import DeviceRegistry, DeviceSpec, PinnedRing


@dataclasses.dataclass(frozen=True, slots=True)
class DecoderInputBuffers:
    """Device tensors that every step of the decoder overwrites.

    Shapes: input_ids [max_num_tokens] int32, position_ids [1, 1, max_num_tokens] int32, gather_ids and seq_slots
    [logit rows] int64, previous_batch_indices [max_num_sequences] int64, previous_draft_lens and kv_limits
    [max_num_sequences] int32. Valid: for the life of the engine.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    gather_ids: torch.Tensor
    seq_slots: torch.Tensor
    previous_batch_indices: torch.Tensor
    previous_draft_lens: torch.Tensor
    kv_limits: torch.Tensor

    @classmethod
    def allocate(
        cls,
        *,
        max_num_tokens: int,
        max_num_sequences: int,
        spec: DeviceSpec,
        registry: DeviceRegistry,
        max_draft_len: int = 0,
    ) -> "DecoderInputBuffers":
        """Allocate every buffer at its capacity, and register it as device memory."""
        device = spec.torch_device
        logit_rows = max(max_num_sequences, min(max_num_sequences * (1 + max_draft_len), max_num_tokens))
        buffers = cls(
            input_ids=torch.zeros(max_num_tokens, dtype=torch.int32, device=device),
            position_ids=torch.zeros(1, 1, max_num_tokens, dtype=torch.int32, device=device),
            gather_ids=torch.zeros(logit_rows, dtype=torch.int64, device=device),
            seq_slots=torch.zeros(logit_rows, dtype=torch.int64, device=device),
            previous_batch_indices=torch.zeros(max_num_sequences, dtype=torch.int64, device=device),
            previous_draft_lens=torch.zeros(max_num_sequences, dtype=torch.int32, device=device),
            kv_limits=torch.zeros(max_num_sequences, dtype=torch.int32, device=device),
        )
        for name, tensor in buffers.tensors().items():
            registry.register(f"input_buffers.{name}", tensor)
        return buffers

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name every buffer."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def addresses(self) -> dict[str, int]:
        """Return where each buffer lies; equal at every step of an engine's life."""
        return {name: tensor.data_ptr() for name, tensor in self.tensors().items()}


@dataclasses.dataclass(frozen=True, slots=True)
class StagingRings:
    """Pinned mirrors of the buffers, two per list, each reused only after its copy's event has passed."""

    input_ids: PinnedRing
    position_ids: PinnedRing
    gather_ids: PinnedRing
    seq_slots: PinnedRing
    previous_batch_indices: PinnedRing
    previous_draft_lens: PinnedRing
    kv_limits: PinnedRing

    @classmethod
    def allocate(cls, buffers: DecoderInputBuffers, spec: DeviceSpec) -> "StagingRings":
        """Make a ring for each buffer, of the buffer's length and dtype."""
        rings = {name: PinnedRing((tensor.numel(),), tensor.dtype, spec) for name, tensor in buffers.tensors().items()}
        return cls(**rings)

    def wait(self) -> None:
        """Block until every copy out of a mirror has been read."""
        for field in dataclasses.fields(self):
            getattr(self, field.name).wait()

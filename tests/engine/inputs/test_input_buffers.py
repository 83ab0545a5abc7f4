"""Buffers have the sizes that the limits imply and are known as device memory."""

import torch

from engine.device import DeviceRegistry, resolve_device
from engine.inputs.input_buffers import DecoderInputBuffers, StagingRings


def test_buffers_are_sized_by_tokens_and_by_sequences() -> None:
    registry = DeviceRegistry()
    buffers = DecoderInputBuffers.allocate(
        max_num_tokens=40, max_num_sequences=6, spec=resolve_device("cpu", "float32"), registry=registry
    )
    assert {name: tuple(t.shape) for name, t in buffers.tensors().items()} == {
        "input_ids": (40,),
        "position_ids": (1, 1, 40),
        "gather_ids": (6,),
        "seq_slots": (6,),
        "previous_batch_indices": (6,),
        "previous_draft_lens": (6,),
        "kv_limits": (6,),
    }
    assert buffers.input_ids.dtype is torch.int32
    assert all(registry.owns(tensor) for tensor in buffers.tensors().values())


def test_every_buffer_has_a_mirror_of_its_own_length() -> None:
    spec = resolve_device("cpu", "float32")
    buffers = DecoderInputBuffers.allocate(max_num_tokens=12, max_num_sequences=3, spec=spec, registry=DeviceRegistry())
    rings = StagingRings.allocate(buffers, spec)
    for name, tensor in buffers.tensors().items():
        staged = getattr(rings, name).stage(list(range(tensor.numel())))
        assert staged.tolist() == list(range(tensor.numel()))
        assert staged.dtype is tensor.dtype


def test_every_verify_row_has_room_among_the_logit_rows_up_to_the_rows_of_a_step() -> None:
    for max_num_tokens, rows in ((100, 18), (10, 10)):
        buffers = DecoderInputBuffers.allocate(
            max_num_tokens=max_num_tokens,
            max_num_sequences=6,
            max_draft_len=2,
            spec=resolve_device("cpu", "float32"),
            registry=DeviceRegistry(),
        )
        assert buffers.gather_ids.numel() == buffers.seq_slots.numel() == rows

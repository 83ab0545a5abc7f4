"""A decode step's attention as one mutating op: norm and rotate, write keys and values, attend; one row a sequence.

    stepscope::rotary_attention_(out!, qkv, positions, *, cos, signed_sin, gain, eps, key_blocks!, value_blocks!,
                                 kv_lens, block_table) -> ()

Row n belongs to sequence n. A row is live when its position is below its sequence's kv_len; for others nothing is
written, and their output is zero. Everything that depends on lengths is read from device tensors inside the op.

Does not: serve several rows a sequence (``paged_attention.py``), or know a layer. The CPU kernel is the reference: on a
CPU the model rotates by torch and calls ``paged_attention_``, which is faster there. Source: own.
"""

from typing import Any, Final

import torch
from torch.nn import functional

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define(
    "rotary_attention_(Tensor(a!) out, Tensor qkv, Tensor positions, *, Tensor cos, Tensor signed_sin, Tensor? gain, "
    "float eps, Tensor(b!) key_blocks, Tensor(c!) value_blocks, Tensor kv_lens, Tensor block_table) -> ()"
)


def rotary_attention_reference(
    out: torch.Tensor,
    qkv: torch.Tensor,
    positions: torch.Tensor,
    *,
    cos: torch.Tensor,
    signed_sin: torch.Tensor,
    gain: torch.Tensor | None,
    eps: float,
    key_blocks: torch.Tensor,
    value_blocks: torch.Tensor,
    kv_lens: torch.Tensor,
    block_table: torch.Tensor,
) -> None:
    """Say what the op computes, a row at a time.

    Shapes: out [N, H, D], qkv [N, (H + 2G) D], cos and signed_sin [positions, D], gain [H + G, D], positions and
    kv_lens [N] int32, blocks [G, J + 1, I, D], block_table [N, W] int32.
    """
    N, H, D = out.shape
    G, _, size, _ = key_blocks.shape
    heads = qkv.view(N, H + 2 * G, D)
    turning = heads[:, : H + G]
    if gain is not None:
        turning = functional.rms_norm(turning, (D,), None, eps) * gain
    turned = torch.cat((turning[..., D // 2 :], turning[..., : D // 2]), dim=-1)
    at = positions.long()
    rotated = turning * cos[at].unsqueeze(1) + turned * signed_sin[at].unsqueeze(1)
    for n, position in enumerate(positions.tolist()):
        if position >= int(kv_lens[n]):
            out[n].zero_()
            continue
        tokens = torch.arange(position + 1)
        blocks = block_table[n, tokens // size].long()
        key_blocks[:, blocks[-1], position % size] = rotated[n, H:]
        value_blocks[:, blocks[-1], position % size] = heads[n, H + G :]
        keys, values = (pool[:, blocks, tokens % size] for pool in (key_blocks, value_blocks))  # [G, T, D]
        query = rotated[n, :H].view(G, H // G, D)
        out[n] = functional.scaled_dot_product_attention(query, keys, values).view(H, D)


def _fake(out: torch.Tensor, qkv: torch.Tensor, positions: torch.Tensor, **arguments: Any) -> None:
    """Mutates its arguments and returns nothing: there is no shape to propagate."""


def _cuda(out: torch.Tensor, qkv: torch.Tensor, positions: torch.Tensor, **arguments: Any) -> None:
    from engine.ops.triton.rotary_attention import rotary_attention_cuda
    from engine.ops.triton.streamed_attention import can_stream, stream_attention

    launch = stream_attention if can_stream(out, arguments["key_blocks"]) else rotary_attention_cuda
    launch(out, qkv, positions, **arguments)


LIBRARY.impl("rotary_attention_", rotary_attention_reference, "CPU")
LIBRARY.impl("rotary_attention_", _cuda, "CUDA")
LIBRARY.impl("rotary_attention_", _fake, "Meta")

rotary_attention_ = torch.ops.stepscope.rotary_attention_.default

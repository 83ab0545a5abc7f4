"""A few numbers from the device into pinned host memory, as one op: a kernel that stores them there itself.

    stepscope::send_to_host_(target!, source) -> ()

A copy engine would have to be waited for twice, by the copy for the kernels before it and by those behind for the copy;
for some hundred bytes between two replays that is longer than the copy.

Does not: wait. The numbers are there when an event behind it has passed. Source: own.
"""

from typing import Final

import torch

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define("send_to_host_(Tensor(a!) target, Tensor source) -> ()")


def send_to_host_reference(target: torch.Tensor, source: torch.Tensor) -> None:
    """Say what the op computes. Shapes: both of the same shape and dtype, target contiguous and pinned."""
    target.copy_(source)


def _fake(target: torch.Tensor, source: torch.Tensor) -> None:
    """Mutates its argument and returns nothing: there is no shape to propagate."""


def _cuda(target: torch.Tensor, source: torch.Tensor) -> None:
    from engine.ops.triton.between_steps import send_to_host_cuda

    send_to_host_cuda(target, source)


LIBRARY.impl("send_to_host_", send_to_host_reference, "CPU")
LIBRARY.impl("send_to_host_", _cuda, "CUDA")
LIBRARY.impl("send_to_host_", _fake, "Meta")

send_to_host_ = torch.ops.stepscope.send_to_host_.default

"""The Python functions behind our own CPU ops, by op: what a recorded step calls instead of the dispatcher.

A call of a Python kernel through torch's dispatcher costs about 15 us beside the work; a decode step of 30 layers makes
120. A graph replays kernels, not dispatches, so the tape asks here for the kernel of an op that it recorded.

Does not: register anything with torch (each op's file does), or know CUDA kernels.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

_KERNELS: dict[OpOverload, Callable[..., Any]] = {}


def bind_host_kernel(name: str, kernel: Callable[..., Any]) -> None:
    """Remember the CPU kernel of ``stepscope::name``; name is "op" or "op.overload", as in ``Library.impl``."""
    packet, _, overload = name.partition(".")
    _KERNELS[getattr(getattr(torch.ops.stepscope, packet), overload or "default")] = kernel


def host_kernel(op: OpOverload) -> Callable[..., Any] | None:
    """Return the function that the dispatcher would reach for CPU tensors, None for an op of torch's own."""
    return _KERNELS.get(op)

"""What a launch of our CUDA kernels depends on besides its arguments: the device's size, and whether launches overlap.

From compute capability 9.0 on, a kernel may start while the one before it still runs (programmatic dependent launch).
Ours then do whatever needs nothing of their predecessor, such as asking for weights, and wait. Rules that make it safe:
every program of every kernel waits (``gdc_wait``) before it reads what another kernel wrote or writes anything at
all, and what it reads before the wait was written before the step began. A graph keeps these edges when it is captured.

Does not: launch anything. Source: CUDA's programming guide on programmatic dependent launch.
"""

import functools
from typing import Any

import torch


@functools.cache
def num_multiprocessors(device: torch.device) -> int:
    """Count the device's multiprocessors: how many programs run at once, at the least."""
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def holds_large_tiles(device: torch.device) -> bool:
    """Whether a program may have the 192 KiB of shared memory of our largest tiles: data-centre chips since Hopper."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device)[0] in {9, 10}


@functools.cache
def overlap(device: torch.device) -> dict[str, Any]:
    """Give the launch options that let a kernel start early, and tell it so (PDL)."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0):
        return {"PDL": True, "launch_pdl": True}
    return {"PDL": False}

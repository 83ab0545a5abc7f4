"""The CUDA kernels between two replays: the next step's inputs from the last samples, and the samples to the host.

Each is one small launch. The second stores straight into pinned memory, which the device can address.

Does not: run inside a graph. Source: own.
"""

# ruff: noqa: PLR0917 - a kernel takes pointers and sizes one by one
import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def advance(id_ptr, position_ptr, sample_ptr, slot_ptr, rows, BN: tl.constexpr):
    """Take row n's newest sample as its token, and move its position on by one."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = n < rows
    slot = tl.load(slot_ptr + n, mask=inside, other=0)
    tl.store(id_ptr + n, tl.load(sample_ptr + slot, mask=inside, other=0), mask=inside)
    tl.store(position_ptr + n, tl.load(position_ptr + n, mask=inside, other=0) + 1, mask=inside)


@triton.jit
def store(target_ptr, source_ptr, count, BN: tl.constexpr):
    """Copy ``count`` numbers."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    tl.store(target_ptr + n, tl.load(source_ptr + n, mask=n < count, other=0), mask=n < count)


def advance_rows_cuda(
    input_ids: torch.Tensor, position_ids: torch.Tensor, samples: torch.Tensor, slots: torch.Tensor
) -> None:
    """Launch ``stepscope::advance_rows_``; everything is contiguous."""
    rows = input_ids.numel()
    if rows:
        advance[(triton.cdiv(rows, BLOCK),)](  # pyright: ignore[reportIndexIssue]
            input_ids, position_ids, samples, slots, rows, BN=BLOCK, num_warps=4
        )


def send_to_host_cuda(target: torch.Tensor, source: torch.Tensor) -> None:
    """Launch ``stepscope::send_to_host_``; both are contiguous, target is pinned."""
    count = source.numel()
    if count:
        store[(triton.cdiv(count, BLOCK),)](  # pyright: ignore[reportIndexIssue]
            target, source, count, BN=BLOCK, num_warps=4
        )

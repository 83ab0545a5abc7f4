"""The inputs of the next decode step from those of the last, as one mutating op: newest tokens in, positions on by one.

    stepscope::advance_rows_(input_ids!, position_ids!, samples, slots) -> ()

One launch instead of two: what runs between two replays is what a small model's step is longer by.

Does not: know lengths or tables (the attention metadata advances its own). Source: own.
"""

from typing import Final

import torch

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define("advance_rows_(Tensor(a!) input_ids, Tensor(b!) position_ids, Tensor samples, Tensor slots) -> ()")


def advance_rows_reference(
    input_ids: torch.Tensor, position_ids: torch.Tensor, samples: torch.Tensor, slots: torch.Tensor
) -> None:
    """Say what the op computes. Shapes: input_ids [N], position_ids [.., N], samples [A], all int32, slots [N]."""
    torch.index_select(samples, 0, slots, out=input_ids)
    position_ids.add_(1)


def _fake(input_ids: torch.Tensor, position_ids: torch.Tensor, samples: torch.Tensor, slots: torch.Tensor) -> None:
    """Mutates its arguments and returns nothing: there is no shape to propagate."""


def _cuda(input_ids: torch.Tensor, position_ids: torch.Tensor, samples: torch.Tensor, slots: torch.Tensor) -> None:
    from engine.ops.triton.between_steps import advance_rows_cuda

    advance_rows_cuda(input_ids, position_ids, samples, slots)


LIBRARY.impl("advance_rows_", advance_rows_reference, "CPU")
LIBRARY.impl("advance_rows_", _cuda, "CUDA")
LIBRARY.impl("advance_rows_", _fake, "Meta")

advance_rows_ = torch.ops.stepscope.advance_rows_.default

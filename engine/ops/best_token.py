"""The greedy sample as one mutating op: the best id of each row of logits, lowest on ties, written to the row's slot.

    stepscope::best_token_(tokens!, logits, slots) -> ()

Does not: draw, or know requests. Rows that share a slot leave one of their ids there. Source: own.
"""

from typing import Final

import torch

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define("best_token_(Tensor(a!) tokens, Tensor logits, Tensor slots) -> ()")


def best_token_reference(tokens: torch.Tensor, logits: torch.Tensor, slots: torch.Tensor) -> None:
    """Say what the op computes. Shapes: tokens [..] int32 of as many as there are slots, logits [R, V], slots [R]."""
    tokens.view(-1).scatter_(0, slots, logits.argmax(1).to(torch.int32))


def _fake(tokens: torch.Tensor, logits: torch.Tensor, slots: torch.Tensor) -> None:
    """Mutates its arguments and returns nothing: there is no shape to propagate."""


def _cuda(tokens: torch.Tensor, logits: torch.Tensor, slots: torch.Tensor) -> None:
    from engine.ops.triton.best_token import best_token_cuda

    best_token_cuda(tokens, logits, slots)


LIBRARY.impl("best_token_", best_token_reference, "CPU")
LIBRARY.impl("best_token_", _cuda, "CUDA")
LIBRARY.impl("best_token_", _fake, "Meta")

best_token_ = torch.ops.stepscope.best_token_.default

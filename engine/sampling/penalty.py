"""Repetition penalty: tokens that were seen become less likely.

Does not: know which tokens were seen (``state.py`` keeps the table).
Source: Keskar et al. 2019 (CTRL), with the sign rule of transformers.
"""

import torch


def apply_repetition_penalty(logits: torch.Tensor, seen: torch.Tensor, penalty: torch.Tensor) -> torch.Tensor:
    """Divide the positive logits of seen tokens and multiply the negative ones.

    Shapes: logits [..., V], seen [..., V] bool, penalty float32, broadcast -> [..., V]. A penalty of 1 changes no bit.
    """
    changed = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(seen, changed, logits)

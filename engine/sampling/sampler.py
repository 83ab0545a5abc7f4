"""Sampling, inside the captured callable: logits in, ``new_tokens[0, slot, 0]`` out.

Two variants, because the graph key has two: GREEDY is one argmax and one scatter; FULL is the op of ``choice.py``,
which reads each row's parameters from the device, so that one graph serves all settings. A greedy row in a FULL batch
gets the argmax exactly. Ties of an argmax go to the lowest id.

Does not: read the host, hold a generator, decide when a request ends (``stopping.py``), or choose the mode.
Source: TensorRT-LLM's sampling inside the captured region, reduced to two variants.
"""

import dataclasses
from typing import Literal

import torch

from engine.ops.best_token import best_token_
from engine.sampling.choice import choose_rows
from engine.sampling.state import SamplerState

SampleModeName = Literal["greedy", "full"]


def sample(
    state: SamplerState,
    logits: torch.Tensor,
    seq_slots: torch.Tensor,
    positions: torch.Tensor,
    mode: SampleModeName,
) -> None:
    """Choose a token for each logit row and write it into ``state.new_tokens`` at the row's slot.

    Shapes: logits [R, V] float32, seq_slots [R] int64, positions [R] integer (the position that the new token will
    have; the noise depends on it, so it must be a device fact). mode is part of the graph key. FULL also marks the
    chosen tokens as seen. Rows that share a slot (padding) leave one of their samples there.
    Capturable: no host read, no shape that depends on contents.
    """
    assert mode in ("greedy", "full"), mode
    if mode == "greedy" and logits.is_cuda:
        best_token_(state.new_tokens, logits, seq_slots)
        return
    if mode == "greedy":
        chosen = logits.argmax(1)
    else:
        chosen = choose_rows(state, logits, seq_slots, positions)
        state.token_seen.view(-1).scatter_(0, seq_slots * state.vocab_size + chosen, True)  # noqa: FBT003 (the value)
    state.new_tokens.view(-1).scatter_(0, seq_slots, chosen.to(torch.int32))


@dataclasses.dataclass(frozen=True, slots=True)
class TokenLogProbs:
    """Natural-log probabilities of some rows under the raw logits (before penalty and temperature).

    Shapes: chosen_ids [n] int64, chosen_values [n] float32, top_ids [n, k] int64 and top_values [n, k] float32, most
    likely first. Valid: own memory, not a graph's.
    """

    chosen_ids: torch.Tensor
    chosen_values: torch.Tensor
    top_ids: torch.Tensor
    top_values: torch.Tensor

    def as_dicts(self) -> list[dict[int, float]]:
        """Read the host values: one {token id: log-probability} a row, most likely first, the chosen one always in."""
        rows: list[dict[int, float]] = []
        chosen = zip(self.chosen_ids.tolist(), self.chosen_values.tolist(), strict=True)
        top = zip(self.top_ids.tolist(), self.top_values.tolist(), strict=True)
        for (chosen_id, chosen_value), (ids, values) in zip(chosen, top, strict=True):
            row: dict[int, float] = dict(zip(ids, values, strict=True))
            row.setdefault(chosen_id, chosen_value)
            rows.append(row)
        return rows


def log_probs(logits: torch.Tensor, chosen: torch.Tensor, top_n: int) -> TokenLogProbs:
    """Compute log-probabilities of the rows that asked for them, eagerly, after the forward.

    Shapes: logits [n, V] float32, chosen [n] integer. top_n is cut to V; 0 leaves the chosen token alone.
    """
    values = logits.log_softmax(1)
    chosen_ids = chosen.to(torch.int64)
    top_values, top_ids = values.topk(min(top_n, logits.shape[1]), dim=1)
    return TokenLogProbs(chosen_ids, values.gather(1, chosen_ids[:, None])[:, 0], top_ids, top_values)

"""Sampling, inside the captured callable: logits in, ``new_tokens[0, slot, 0]`` out.

Two variants, because the graph key has two: GREEDY is one argmax and one scatter; FULL does everything for every
row, with fixed shapes and parameters read from the device, so that one graph serves all settings. A greedy row in
a FULL batch gets the argmax exactly. Order in FULL: repetition penalty, temperature, top-k, top-p, min-p, draw.

Does not: read the host, hold a generator, decide when a request ends (``stopping.py``), or choose the mode.
Ties of an argmax go to the lowest id. A row whose largest logit is not finite takes the argmax.
Source: the order and meaning of transformers' logits processors; Gumbel-max for the draw.
"""

import dataclasses
from typing import Final, Literal

import torch

from engine.sampling.cutoff import descending_keys, integer_mass, keep_top_k, keep_top_p
from engine.sampling.noise import gumbel
from engine.sampling.state import MIN_P, PENALTY, SEED, TEMPERATURE, TOP_K, TOP_P, SamplerState

SampleModeName = Literal["greedy", "full"]
_NEVER: Final = float("-inf")


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
    if mode == "greedy":
        chosen = logits.argmax(1)
    else:
        chosen = choose_full(state, logits, seq_slots, positions)
        state.token_seen.view(-1).scatter_(0, seq_slots * state.vocab_size + chosen, True)  # noqa: FBT003 (the value)
    state.new_tokens.view(-1).scatter_(0, seq_slots, chosen.to(torch.int32))


def choose_full(
    state: SamplerState, logits: torch.Tensor, seq_slots: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Choose by each row's own parameters. Shapes: as ``sample`` -> [R] int64."""
    reals = state.reals.index_select(0, seq_slots)
    integers = state.integers.index_select(0, seq_slots)
    seen = state.token_seen.index_select(0, seq_slots)
    penalised = apply_repetition_penalty(logits, seen, reals[:, PENALTY, None].to(torch.float32))
    greedy_choice = penalised.argmax(1)
    best = penalised.gather(1, greedy_choice[:, None])
    temperature = reals[:, TEMPERATURE].to(torch.float32)
    takes_argmax = (temperature == 0.0) | ~torch.isfinite(best[:, 0])
    scores = (penalised - best) / temperature.masked_fill(takes_argmax, 1.0)[:, None]  # the best token's score is 0
    keep = keep_tokens(penalised, scores, reals, integers)
    scores = scores + gumbel(integers[:, SEED], positions.to(torch.int64), state.vocab_ids)
    drawn = scores.masked_fill_(~keep, _NEVER).argmax(1)
    return torch.where(takes_argmax, greedy_choice, drawn)


def apply_repetition_penalty(logits: torch.Tensor, seen: torch.Tensor, penalty: torch.Tensor) -> torch.Tensor:
    """Make seen tokens less likely: positive logits are divided, negative ones multiplied.

    Shapes: logits [R, V], seen [R, V] bool, penalty [R, 1] -> [R, V]. A penalty of 1 changes nothing, bit for bit.
    """
    changed = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(seen, changed, logits)


def keep_tokens(
    logits: torch.Tensor, scores: torch.Tensor, reals: torch.Tensor, integers: torch.Tensor
) -> torch.Tensor:
    """Mark the tokens that top-k, top-p and min-p leave; the best token always stays.

    Shapes: logits [R, V] (their order decides), scores [R, V] (temperature applied, best = 0), reals [R, 4],
    integers [R, 2] -> [R, V] bool. top-p measures what top-k left; min-p is relative to the best token, which no
    filter removes, so it needs neither.
    """
    keys = descending_keys(logits)
    relative = scores.exp()
    in_top_k = keep_top_k(keys, integers[:, TOP_K, None])
    in_top_p = keep_top_p(keys, integer_mass(relative) * in_top_k, reals[:, TOP_P, None])
    in_min_p = relative >= reals[:, MIN_P, None].to(torch.float32)
    return in_top_k & in_top_p & in_min_p


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

"""The CPU kernel of ``stepscope::choose_rows``: row by row, and only what the row's parameters ask for.

A sort or even a few passes over [R, V] cost a CPU more than a small model's layers do. Most rows are decided among few
candidates: top-k names them; top-p's lie among the best thousand tokens unless the row is nearly flat, and only then
is the cut looked for in the whole row. Noise is hashed for the candidates alone.

Does not: approximate. The result is the reference's, except where the last bit of an exp() moves a top-p cut.
Source: own; measurements in LOG.md.
"""

import dataclasses
import math
from typing import Final

import torch

from engine.sampling.cutoff import descending_keys, integer_mass, keep_top_p
from engine.sampling.noise import gumbel
from engine.sampling.penalty import apply_repetition_penalty
from engine.sampling.state import MIN_P, PENALTY, SEED, TEMPERATURE, TOP_K, TOP_P

_NUM_BEST: Final = 1024  # where top-p looks for its set first
_NO_MASS: Final = -60.0  # a score whose mass is 0 anyway; the exp of much less is a denormal, which is slow
_ALL: Final = -1


@dataclasses.dataclass(frozen=True, slots=True)
class _Candidates:
    """What the filters left of a row. ids [n] int64 ascending, scores [n] float32 (temperature applied, best = 0)."""

    ids: torch.Tensor
    scores: torch.Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class _Filters:
    """One row's filters as host numbers; top_k is _ALL where it removes nothing."""

    top_k: int
    top_p: float
    min_p: float


def choose_rows_cpu(
    logits: torch.Tensor,
    seq_slots: torch.Tensor,
    positions: torch.Tensor,
    *,
    reals: torch.Tensor,
    integers: torch.Tensor,
    token_seen: torch.Tensor,
    vocab_ids: torch.Tensor,
) -> torch.Tensor:
    """Choose by each row's own parameters. Shapes: as ``choice.choose_rows_reference``."""
    chosen: list[int] = []
    vocab_size = logits.shape[1]
    row_reals, row_integers = reals.index_select(0, seq_slots), integers.index_select(0, seq_slots)
    row_seeds, row_positions = row_integers[:, SEED], positions.to(torch.int64)
    settings = zip(row_reals.tolist(), row_integers.tolist(), seq_slots.tolist(), strict=True)
    for row, (real, integer, slot) in enumerate(settings):
        values = logits[row]
        if real[PENALTY] != 1.0:
            values = _penalise(values, token_seen[slot], row_reals[row, PENALTY].to(torch.float32))
        greedy_choice = int(values.argmax())
        best, temperature = values[greedy_choice], row_reals[row, TEMPERATURE].to(torch.float32)
        if float(temperature) == 0.0 or not math.isfinite(float(best)):
            chosen.append(greedy_choice)
            continue
        top_k = integer[TOP_K] if integer[TOP_K] < vocab_size else _ALL
        filters = _Filters(top_k, real[TOP_P], float(row_reals[row, MIN_P].to(torch.float32)))
        left = _filter(values, best, temperature, filters, vocab_ids)
        noise = gumbel(row_seeds[row : row + 1], row_positions[row : row + 1], left.ids)[0]
        chosen.append(int(left.ids[(left.scores + noise).argmax()]))
    return torch.tensor(chosen, dtype=torch.int64)


def _penalise(values: torch.Tensor, seen: torch.Tensor, penalty: torch.Tensor) -> torch.Tensor:
    """Apply the penalty where it changes something: a row has seen few of its tokens."""
    at = seen.nonzero()[:, 0]
    return values.index_copy(0, at, apply_repetition_penalty(values[at], seen[at], penalty))


def _filter(
    values: torch.Tensor, best: torch.Tensor, temperature: torch.Tensor, filters: _Filters, vocab_ids: torch.Tensor
) -> _Candidates:
    """Apply top-k, top-p and min-p to one row. Shapes: values [V], best and temperature []."""
    if filters.top_k != _ALL:
        at = (values >= values.topk(filters.top_k).values[-1]).nonzero()[:, 0]
        left = _Candidates(vocab_ids[at], (values[at] - best) / temperature)
    else:
        left = _Candidates(vocab_ids, (values - best) / temperature)
    if filters.top_p < 1.0:
        left = _keep_top_p(left, filters.top_p)
    if filters.min_p > 0.0:
        left = _subset(left.ids, left.scores, left.scores.exp() >= filters.min_p)
    return left


def _subset(ids: torch.Tensor, scores: torch.Tensor, keep: torch.Tensor) -> _Candidates:
    at = keep.nonzero()[:, 0]
    return _Candidates(ids[at], scores[at])


def _keep_top_p(left: _Candidates, top_p: float) -> _Candidates:
    """Keep the smallest set of best candidates that holds the share, walking a sorted list where few suffice."""
    mass = integer_mass(left.scores.clamp(min=_NO_MASS).exp())
    target = max(1, math.ceil(float(int(mass.sum())) * top_p))
    ids, scores = left.ids, left.scores
    if ids.numel() > 2 * _NUM_BEST:
        near = scores >= scores.topk(_NUM_BEST).values[-1]
        if int((mass * near).sum()) < target:
            share = torch.tensor([[top_p]], dtype=torch.float64)
            return _subset(ids, scores, keep_top_p(descending_keys(scores[None]), mass[None], share)[0])
        at = near.nonzero()[:, 0]
        ids, scores, mass = ids[at], scores[at], mass[at]
    order = scores.argsort(descending=True, stable=True)  # ascending ids: a tie goes to the lowest
    reached = mass[order].cumsum(0)
    num_kept = int((reached < target).sum()) + 1
    kept = order[:num_kept].sort().values
    return _Candidates(ids[kept], scores[kept])

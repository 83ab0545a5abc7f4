"""The FULL choice of a token for each row, in fixed shapes: the op ``stepscope::choose_rows`` and its reference.

Everything is done for every row, whatever its parameters, so that one captured graph serves all of them. This is what
the kernels have to equal, the CPU's (``choice_cpu.py``) and CUDA's (``ops/triton/choose_rows.py``); those read the
parameters and skip what a row does not need, as a kernel may, for the tables lie in its own device's memory.

Order: repetition penalty, temperature, top-k, top-p, min-p, draw. Does not: write anywhere, or hold a generator.
Source: the order and meaning of transformers' logits processors; Gumbel-max for the draw.
"""

from typing import Final

import torch

from engine.sampling.choice_cpu import choose_rows_cpu
from engine.sampling.cutoff import descending_keys, integer_mass, keep_top_k, keep_top_p
from engine.sampling.noise import gumbel
from engine.sampling.penalty import apply_repetition_penalty
from engine.sampling.state import MIN_P, PENALTY, SEED, TEMPERATURE, TOP_K, TOP_P, SamplerState

_SCHEMA: Final = (
    "choose_rows(Tensor logits, Tensor seq_slots, Tensor positions, *, Tensor reals, Tensor integers, "
    "Tensor token_seen, Tensor vocab_ids) -> Tensor"
)
_NEVER: Final = float("-inf")


def choose_rows_reference(
    logits: torch.Tensor,
    seq_slots: torch.Tensor,
    positions: torch.Tensor,
    *,
    reals: torch.Tensor,
    integers: torch.Tensor,
    token_seen: torch.Tensor,
    vocab_ids: torch.Tensor,
) -> torch.Tensor:
    """Choose by each row's own parameters.

    Shapes: logits [R, V] float32, seq_slots [R] int64, positions [R] integer, the rest as in ``SamplerState``
    -> [R] int64. A row of temperature 0 (in float32) and a row whose best logit is not finite take the argmax.
    """
    reals = reals.index_select(0, seq_slots)
    integers = integers.index_select(0, seq_slots)
    seen = token_seen.index_select(0, seq_slots)
    penalised = apply_repetition_penalty(logits, seen, reals[:, PENALTY, None].to(torch.float32))
    greedy_choice = penalised.argmax(1)
    best = penalised.gather(1, greedy_choice[:, None])
    temperature = reals[:, TEMPERATURE].to(torch.float32)
    takes_argmax = (temperature == 0.0) | ~torch.isfinite(best[:, 0])
    scores = (penalised - best) / temperature.masked_fill(takes_argmax, 1.0)[:, None]  # the best token's score is 0
    keep = keep_tokens(penalised, scores, reals, integers)
    scores = scores + gumbel(integers[:, SEED], positions.to(torch.int64), vocab_ids)
    drawn = scores.masked_fill_(~keep, _NEVER).argmax(1)
    return torch.where(takes_argmax, greedy_choice, drawn)


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


def _fake(logits: torch.Tensor, *_args: torch.Tensor, **_tables: torch.Tensor) -> torch.Tensor:
    """Give the shape alone: one id a row."""
    return logits.new_empty((logits.shape[0],), dtype=torch.int64)


def _cuda(
    logits: torch.Tensor, seq_slots: torch.Tensor, positions: torch.Tensor, **tables: torch.Tensor
) -> torch.Tensor:
    from engine.ops.triton.choose_rows import choose_rows_cuda

    return choose_rows_cuda(logits, seq_slots, positions, **tables)


def _register() -> torch.library.Library:
    library = torch.library.Library("stepscope", "FRAGMENT")
    library.define(_SCHEMA)
    library.impl("choose_rows", choose_rows_reference, "CompositeExplicitAutograd")
    library.impl("choose_rows", choose_rows_cpu, "CPU")
    library.impl("choose_rows", _cuda, "CUDA")
    torch.library.register_fake("stepscope::choose_rows", _fake, lib=library)
    return library


_LIBRARY: Final = _register()  # the op lives as long as this object


def choose_rows(
    state: SamplerState, logits: torch.Tensor, seq_slots: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Call the op on the state's tables. Shapes: as ``choose_rows_reference``."""
    return torch.ops.stepscope.choose_rows(
        logits,
        seq_slots,
        positions,
        reals=state.reals,
        integers=state.integers,
        token_seen=state.token_seen,
        vocab_ids=state.vocab_ids,
    )

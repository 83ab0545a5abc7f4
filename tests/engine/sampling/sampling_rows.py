"""Shared makings of the sampler's tests: a state on the CPU, rows of logits, and transformers as the oracle.

Does not: hold tests.
"""

from collections.abc import Sequence

import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.config import SamplingParams
from engine.device import make_stream, resolve_device
from engine.sampling.choice import keep_tokens
from engine.sampling.penalty import apply_repetition_penalty
from engine.sampling.sampler import sample
from engine.sampling.state import SamplerState

SPEC = resolve_device("cpu", "float32")


def make_state(num_slots: int, vocab_size: int) -> SamplerState:
    """Allocate a state without a registry."""
    return SamplerState.allocate(num_slots, vocab_size, SPEC)


def set_slot(
    state: SamplerState, slot: int, params: SamplingParams, *, seed: int = 0, seen: Sequence[int] = (0,)
) -> None:
    """Set a slot through a plain stream."""
    state.set_slot(slot, params, seed=seed, prompt_token_ids=seen, stream=make_stream(SPEC))


def random_logits(num_rows: int, vocab_size: int, seed: int = 0, scale: float = 3.0) -> torch.Tensor:
    """Draw logits from a seeded normal distribution."""
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * scale


def draw(state: SamplerState, logits: torch.Tensor, slots: Sequence[int], positions: Sequence[int]) -> list[int]:
    """Sample once in FULL mode and read the slots' tokens."""
    sample(state, logits, torch.tensor(slots), torch.tensor(positions), "full")
    return [int(state.new_tokens[0, slot, 0]) for slot in slots]


def ours_kept(logits: torch.Tensor, params: SamplingParams, seen: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (mask of kept tokens, scores with the best at 0) of one row by our rules."""
    vocab_size = logits.numel()
    state = make_state(1, vocab_size)
    set_slot(state, 0, params, seen=seen)
    penalty = torch.tensor([[params.repetition_penalty]])
    penalised = apply_repetition_penalty(logits[None], state.token_seen, penalty)
    scores = (penalised - penalised.amax(1, keepdim=True)) / params.temperature
    return keep_tokens(penalised, scores, state.reals, state.integers)[0], scores[0]


def oracle_scores(logits: torch.Tensor, params: SamplingParams, seen: Sequence[int]) -> torch.Tensor:
    """Apply transformers' processors in the order in which its generate() builds them; minus infinity is removed."""
    processors = LogitsProcessorList()
    if params.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(float(params.repetition_penalty)))
    processors.append(TemperatureLogitsWarper(float(params.temperature)))
    if params.top_k is not None:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        processors.append(TopPLogitsWarper(params.top_p))
    if params.min_p > 0.0:
        processors.append(MinPLogitsWarper(params.min_p))
    return processors(torch.tensor([list(seen)]), logits[None].double())[0]

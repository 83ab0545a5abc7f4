"""SamplerState: everything that sampling reads and writes on the device, indexed by sequence slot.

A graph bakes in the addresses of these tensors; a new request changes their contents, in place, through the stream.
One packed row of reals and one of integers a slot keep set-up at two small copies and the captured reads at two.

Does not: sample (``sampler.py``), choose slots or seeds, or know which slots are live.
Source: TensorRT-LLM's sampler buffers by seq_slot, in our words.
"""

from collections.abc import Sequence
from typing import Final, Self

import torch

from engine.config import SamplingParams
from engine.device import DeviceRegistry, DeviceSpec, Stream
from engine.sampling.seeds import to_int64

TEMPERATURE: Final = 0
TOP_P: Final = 1
MIN_P: Final = 2
PENALTY: Final = 3
TOP_K: Final = 0
SEED: Final = 1


class SamplerState:
    """Slot-indexed sampling parameters, the tokens seen by each slot, and the newest samples.

    Shapes: reals [A, 4] float64 (temperature, top_p, min_p, penalty), integers [A, 2] int64 (top_k, seed), token_seen
    [A, V] bool, new_tokens [1, A, 1] int32, vocab_ids [V] int64. Valid: as long as the engine; the addresses never
    change. A slot that was never set is greedy. ``top_k`` is V where it is off.
    token_seen of a slot is right only while its request has a penalty; nobody reads it otherwise.
    """

    def __init__(self, num_slots: int, vocab_size: int, device: torch.device) -> None:
        """Allocate once, every slot greedy; ``allocate`` is the constructor for callers."""
        self.num_slots = num_slots
        self.vocab_size = vocab_size
        self.reals = torch.tensor([[0.0, 1.0, 0.0, 1.0]], dtype=torch.float64).repeat(num_slots, 1).to(device)
        self.integers = torch.tensor([[vocab_size, 0]], dtype=torch.int64).repeat(num_slots, 1).to(device)
        self.token_seen = torch.zeros((num_slots, vocab_size), dtype=torch.bool, device=device)
        self.new_tokens = torch.zeros((1, num_slots, 1), dtype=torch.int32, device=device)
        self.vocab_ids = torch.arange(vocab_size, dtype=torch.int64, device=device)

    @classmethod
    def allocate(
        cls, num_slots: int, vocab_size: int, spec: DeviceSpec, registry: DeviceRegistry | None = None
    ) -> Self:
        """Allocate the tensors on the spec's device and register them as device memory."""
        state = cls(num_slots, vocab_size, spec.torch_device)
        if registry is not None:
            for name, tensor in state.tensors().items():
                registry.register(f"sampler.{name}", tensor)
        return state

    def set_slot(
        self, slot: int, params: SamplingParams, *, seed: int, prompt_token_ids: Sequence[int], stream: Stream
    ) -> None:
        """Overwrite a slot's row for a new request, through the stream.

        prompt_token_ids: every token that counts as seen for the penalty (after a restart also the generated ones).
        The host tensors are made anew for each call, so a late copy still reads what it should.
        """
        assert 0 <= slot < self.num_slots, f"slot {slot} of {self.num_slots}"
        reals = (params.temperature, params.top_p, params.min_p, params.repetition_penalty)
        top_k = self.vocab_size if params.top_k is None else min(params.top_k, self.vocab_size)
        stream.copy_(self.reals[slot], torch.tensor(reals, dtype=torch.float64))
        stream.copy_(self.integers[slot], torch.tensor((top_k, to_int64(seed)), dtype=torch.int64))
        if params.repetition_penalty != 1.0:
            seen = torch.zeros(self.vocab_size, dtype=torch.bool)
            seen[torch.tensor(list(prompt_token_ids), dtype=torch.int64)] = True
            stream.copy_(self.token_seen[slot], seen)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name every tensor that the captured callable reads or writes."""
        return {
            "reals": self.reals,
            "integers": self.integers,
            "token_seen": self.token_seen,
            "new_tokens": self.new_tokens,
            "vocab_ids": self.vocab_ids,
        }

    def check(self) -> None:
        """Recompute the invariants from the device's contents (synchronises)."""
        assert self.reals.shape == (self.num_slots, 4)
        assert self.integers.shape == (self.num_slots, 2)
        assert self.token_seen.shape == (self.num_slots, self.vocab_size)
        assert self.new_tokens.shape == (1, self.num_slots, 1)
        reals = self.reals.cpu()
        assert bool(torch.isfinite(reals).all())
        assert bool((reals[:, TEMPERATURE] >= 0).all())
        assert bool(((reals[:, TOP_P] > 0) & (reals[:, TOP_P] <= 1)).all())
        assert bool(((reals[:, MIN_P] >= 0) & (reals[:, MIN_P] <= 1)).all())
        assert bool((reals[:, PENALTY] > 0).all())
        top_k = self.integers[:, TOP_K].cpu()
        assert bool(((top_k >= 1) & (top_k <= self.vocab_size)).all())
        new_tokens = self.new_tokens.cpu()
        assert bool(((new_tokens >= 0) & (new_tokens < self.vocab_size)).all())
        assert torch.equal(self.vocab_ids.cpu(), torch.arange(self.vocab_size))

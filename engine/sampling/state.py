"""SamplerState: everything that sampling reads and writes on the device, indexed by sequence slot.

A graph bakes in the addresses of these tensors; a new request changes their contents, in place, through the stream.
One packed row of reals and one of integers a slot keep set-up at two small copies and the captured reads at two.

A slot also keeps its request's guess of the continuation, so that drafts can be picked on the device when the host does
not know yet how many of the last ones were accepted.

Does not: sample (``sampler.py``, ``verify.py``), choose slots or seeds, or know which slots are live.
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
    [A, V] bool, new_tokens [1 + K, A, 1] int32 (K: max_draft_len; row k is the token after draft k), num_accepted [A]
    int32 (of the slot's last verify row), drafts_allowed [A] int32 (0 or 1), draft_rows [1 + K] int64 (where the rows
    of new_tokens begin), vocab_ids [V] int64, guesses [A, T] int32 (T: guess_len), guess_starts [A] int32 (the position
    of a guess's first token). Valid: as long as the engine; the addresses never change.
    A slot that was never set is greedy and accepts no draft. ``top_k`` is V where it is off.
    token_seen of a slot is right only while its request has a penalty; nobody reads it otherwise.
    """

    def __init__(
        self, num_slots: int, vocab_size: int, device: torch.device, *, max_draft_len: int = 0, guess_len: int = 0
    ) -> None:
        """Allocate once, every slot greedy; ``allocate`` is the constructor for callers."""
        self.num_slots = num_slots
        self.vocab_size = vocab_size
        self.max_draft_len = max_draft_len
        self.reals = torch.tensor([[0.0, 1.0, 0.0, 1.0]], dtype=torch.float64).repeat(num_slots, 1).to(device)
        self.integers = torch.tensor([[vocab_size, 0]], dtype=torch.int64).repeat(num_slots, 1).to(device)
        self.token_seen = torch.zeros((num_slots, vocab_size), dtype=torch.bool, device=device)
        self.new_tokens = torch.zeros((1 + max_draft_len, num_slots, 1), dtype=torch.int32, device=device)
        self.num_accepted = torch.zeros(num_slots, dtype=torch.int32, device=device)
        self.drafts_allowed = torch.zeros(num_slots, dtype=torch.int32, device=device)
        self.draft_rows = torch.arange(1 + max_draft_len, dtype=torch.int64, device=device) * num_slots
        self.guesses = torch.zeros((num_slots, guess_len), dtype=torch.int32, device=device)
        self.guess_starts = torch.zeros(num_slots, dtype=torch.int32, device=device)
        self._allowed = [False] * num_slots  # the host's side of drafts_allowed
        self.vocab_ids = torch.arange(vocab_size, dtype=torch.int64, device=device)

    @classmethod
    def allocate(
        cls,
        num_slots: int,
        vocab_size: int,
        spec: DeviceSpec,
        registry: DeviceRegistry | None = None,
        *,
        max_draft_len: int = 0,
        guess_len: int = 0,
    ) -> Self:
        """Allocate the tensors on the spec's device and register them as device memory.

        max_draft_len: drafts that a step verifies at most. guess_len: tokens of a guess that are kept on the device.
        """
        state = cls(num_slots, vocab_size, spec.torch_device, max_draft_len=max_draft_len, guess_len=guess_len)
        if registry is not None:
            for name, tensor in state.tensors().items():
                registry.register(f"sampler.{name}", tensor)
        return state

    def set_slot(
        self,
        slot: int,
        params: SamplingParams,
        *,
        seed: int,
        prompt_token_ids: Sequence[int],
        stream: Stream,
        draft_tokens: Sequence[int] = (),
        prompt_len: int = 0,
    ) -> None:
        """Overwrite a slot's row for a new request, through the stream.

        prompt_token_ids: every token that counts as seen for the penalty (after a restart also the generated ones).
        draft_tokens: the caller's guess of what follows the first prompt_len tokens, the prompt as submitted.
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
        # A penalty makes each token depend on those before it, drafts included: such a request accepts none.
        allowed = bool(draft_tokens) and self.max_draft_len > 0 and params.repetition_penalty == 1.0
        self._set_guess(slot, draft_tokens, allowed=allowed, prompt_len=prompt_len, stream=stream)

    def _set_guess(
        self, slot: int, draft_tokens: Sequence[int], *, allowed: bool, prompt_len: int, stream: Stream
    ) -> None:
        """Say whether the slot's request accepts drafts, and keep its guess where the device has room for one."""
        if allowed != self._allowed[slot]:
            self._allowed[slot] = allowed
            stream.copy_(self.drafts_allowed[slot], torch.tensor(int(allowed), dtype=torch.int32))
        room = self.guesses.shape[1]
        if allowed and room:
            guess = torch.zeros(room, dtype=torch.int32)
            guess[: len(draft_tokens)] = torch.tensor(draft_tokens[:room], dtype=torch.int32)
            stream.copy_(self.guesses[slot], guess)
            stream.copy_(self.guess_starts[slot], torch.tensor(prompt_len, dtype=torch.int32))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name every tensor that the captured callable reads or writes."""
        return {
            "reals": self.reals,
            "integers": self.integers,
            "token_seen": self.token_seen,
            "new_tokens": self.new_tokens,
            "num_accepted": self.num_accepted,
            "drafts_allowed": self.drafts_allowed,
            "draft_rows": self.draft_rows,
            "vocab_ids": self.vocab_ids,
        }

    def check(self) -> None:
        """Recompute the invariants from the device's contents (synchronises)."""
        assert self.reals.shape == (self.num_slots, 4)
        assert self.integers.shape == (self.num_slots, 2)
        assert self.token_seen.shape == (self.num_slots, self.vocab_size)
        assert self.new_tokens.shape == (1 + self.max_draft_len, self.num_slots, 1)
        num_accepted = self.num_accepted.cpu()
        assert bool(((num_accepted >= 0) & (num_accepted <= self.max_draft_len)).all())
        assert self.drafts_allowed.tolist() == [int(allowed) for allowed in self._allowed]
        assert self.draft_rows.tolist() == [k * self.num_slots for k in range(1 + self.max_draft_len)]
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

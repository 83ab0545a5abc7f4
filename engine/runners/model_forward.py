"""ModelForward: what one forward computes, eagerly or while a graph records it: rows, logits, samples.

Every row goes through the layers; the rows that are wanted get logits, and each of these a sample in the persistent
new_tokens. In a step that verifies drafts, the generations' rows are sampled and counted by ``verify``; the contexts'
last rows, which stand in front, are sampled as ever.

Does not: prepare inputs, choose a graph, or hold buffers. Source: own.
"""

import torch

from engine.cuda_graphs.key import KeyType, SampleMode
from engine.cuda_graphs.runner import GraphInputs
from engine.inputs.optional_inputs import OptionalInputs
from engine.inputs.records import PreparedInputs
from engine.models.llama import CausalLM
from engine.sampling.sampler import SamplerState, sample
from engine.sampling.verify import verify


class ModelForward:
    """A model and the sampler that chooses from its logits."""

    def __init__(self, model: CausalLM, sampler: SamplerState, optional: OptionalInputs) -> None:
        """Hold them. optional: what the model takes besides; its rows are those of the step."""
        self._model = model
        self._sampler = sampler
        self._optional = optional

    def eager(self, prepared: PreparedInputs, mode: SampleMode) -> torch.Tensor | None:
        """Compute every row, then sample those that want logits."""
        with torch.no_grad():
            more = self._optional.views(prepared.input_ids.shape[0])
            hidden = self._model(prepared.input_ids, prepared.position_ids, prepared.attn_metadata, **more)
        return self.score(hidden, prepared, mode)

    def score(self, hidden: torch.Tensor, prepared: PreparedInputs, mode: SampleMode) -> torch.Tensor | None:
        """Compute logits for the rows that want them, and sample; None when no row does."""
        num_logits, num_verify_rows = prepared.gather_ids.numel(), prepared.num_verify_rows
        if not num_logits:
            return None
        tokens, positions = prepared.input_ids, prepared.position_ids[0, 0]
        with torch.no_grad():
            if num_logits != hidden.shape[0]:
                hidden = hidden.index_select(0, prepared.gather_ids)
                positions = positions.index_select(0, prepared.gather_ids)
                tokens = tokens.index_select(0, prepared.gather_ids) if num_verify_rows else tokens
            logits = self._model.compute_logits(hidden)
            slots, positions = prepared.seq_slots, positions + 1
            if not num_verify_rows:
                sample(self._sampler, logits, slots, positions, mode.value)
                return logits
            at = num_logits - num_verify_rows
            if at:
                sample(self._sampler, logits[:at], slots[:at], positions[:at], mode.value)
                self._sampler.num_accepted.index_fill_(0, slots[:at], 0)  # the slot's last verify row is another step's
            draft_len = prepared.draft_len
            self._verify(logits[at:], slots[at:], positions[at:], mode, tokens=tokens[at:], draft_len=draft_len)
            return logits

    def captured(self, inputs: GraphInputs, key: KeyType) -> torch.Tensor:
        """Compute a decode step: every row wants logits, so nothing is gathered. This is what a graph records."""
        more = self._optional.views(key.num_tokens())
        hidden = self._model(inputs.input_ids, inputs.position_ids, inputs.attn_metadata, **more)
        logits = self._model.compute_logits(hidden)
        slots, positions, mode = inputs.seq_slots, inputs.position_ids[0, 0] + 1, key.sample_mode
        if key.draft_len:
            self._verify(logits, slots, positions, mode, tokens=inputs.input_ids, draft_len=key.draft_len)
        else:
            sample(self._sampler, logits, slots, positions, mode.value)
        return logits

    def _verify(
        self,
        logits: torch.Tensor,
        slots: torch.Tensor,
        positions: torch.Tensor,
        mode: SampleMode,
        *,
        tokens: torch.Tensor,
        draft_len: int,
    ) -> None:
        verify(self._sampler, logits, slots, positions, mode.value, row_tokens=tokens, draft_len=draft_len)

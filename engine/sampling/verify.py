"""Verification of drafts, inside the captured callable: 1 + K logit rows a sequence in, samples and a count out.

Row k of a sequence ran draft k as its token (row 0 the newest token), so its sample is what the model says after draft
k. Draft k + 1 is accepted if it equals that sample and every draft before it was accepted; then 1 + accepted samples
are new tokens, exactly those that one row a step would have chosen. That holds for drawn tokens too: the noise of a
row is a function of seed and position, so the token at a position depends on the prefix alone.

Does not: choose or hold drafts, rewind KV, or read the host. A sequence that may not accept any keeps its first
sample. Source: the greedy acceptance of TensorRT-LLM's speculative decoding, a cumulative product of equality.
"""

import torch

from engine.ops.best_token import best_token_
from engine.sampling.choice import choose_rows
from engine.sampling.sampler import SampleModeName
from engine.sampling.state import SamplerState


def verify(
    state: SamplerState,
    logits: torch.Tensor,
    seq_slots: torch.Tensor,
    positions: torch.Tensor,
    mode: SampleModeName,
    *,
    row_tokens: torch.Tensor,
    draft_len: int,
) -> None:
    """Sample each row into ``state.new_tokens[row of its sequence, slot]``, count the accepted drafts by slot.

    Shapes: logits [n (1 + K), V] float32, seq_slots [n (1 + K)] int64, positions [n (1 + K)] integer (that the new
    tokens will have), row_tokens [n (1 + K)] integer (what the rows ran); K is draft_len. FULL also marks the first
    sample of each sequence as seen: the only one of a request whose penalty reads that table.
    Capturable: no host read, no shape that depends on contents.
    """
    rows = 1 + draft_len
    assert rows <= state.new_tokens.shape[0], f"{draft_len} drafts, and samples for {state.max_draft_len}"
    by_sequence = seq_slots.view(-1, rows)
    slots, samples = by_sequence[:, 0], state.new_tokens.view(-1)
    places = (by_sequence + state.draft_rows[:rows]).view(-1)
    if mode == "greedy" and logits.is_cuda:
        best_token_(state.new_tokens, logits, places)
        chosen = samples.index_select(0, places)
    else:
        ids = logits.argmax(1) if mode == "greedy" else choose_rows(state, logits, seq_slots, positions)
        if mode == "full":
            first = ids.view(-1, rows)[:, 0]
            state.token_seen.view(-1).scatter_(0, slots * state.vocab_size + first, True)  # noqa: FBT003 (the value)
        chosen = ids.to(torch.int32)
        samples.scatter_(0, places, chosen)
    is_hit = row_tokens.view(-1, rows)[:, 1:] == chosen.view(-1, rows)[:, :-1]
    accepted = is_hit.to(torch.int32).cumprod(1).sum(1).to(torch.int32)
    state.num_accepted.scatter_(0, slots, accepted * state.drafts_allowed.index_select(0, slots))

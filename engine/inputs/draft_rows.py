"""DraftRows: rows that the device derives, because the host does not know yet what their request accepted.

The host lays such rows out as if every draft of the unread step had been accepted. Here, on the device, the count of
accepted drafts says which sample is the newest token, how far positions and lengths lie too high, and which drafts
of the caller's guess come next. It happens on the stream, before the forward and outside of any graph: a graph reads
the corrected contents of the same addresses.

Does not: pack, copy lists, or verify (``sampling/verify.py``). Every tensor is allocated once; nothing is read back.
Source: the offsets for positions and KV lengths that TensorRT-LLM applies in its overlap loop with speculation.
"""

from collections.abc import Callable

import torch

from engine.device import DeviceSpec
from engine.inputs.input_buffers import DecoderInputBuffers
from engine.inputs.records import SampleStateTensors


class DraftRows:
    """Scratch memory for the derivation, and the derivation itself."""

    def __init__(self, buffers: DecoderInputBuffers, spec: DeviceSpec) -> None:
        """Allocate for the largest step."""
        self._buffers = buffers
        num_sequences, num_rows = buffers.previous_batch_indices.numel(), buffers.gather_ids.numel()
        device = spec.torch_device
        self._counts = torch.zeros((3, num_sequences), dtype=torch.int32, device=device)
        self._places = torch.zeros(num_sequences, dtype=torch.int64, device=device)
        self._newest = torch.zeros(num_sequences, dtype=torch.int32, device=device)
        self._draft_places = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._drafts = torch.zeros(num_rows, dtype=torch.int32, device=device)

    def derive(
        self, previous: SampleStateTensors, *, start: int, num_sequences: int, draft_len: int
    ) -> Callable[[], None]:
        """Return the device work that writes tokens and positions of the rows from ``start`` on.

        The buffers hold, of these sequences, the slots, the drafts of the unread step and the limits; and of their
        rows the positions of the best case. Rows behind a limit end up on it, where they are dead.
        """
        buffers, D, rows = self._buffers, num_sequences, 1 + draft_len
        assert previous.num_accepted is not None, "rows behind a verify row, and no count of what it accepted"
        num_accepted, samples, num_slots = (
            previous.num_accepted,
            previous.new_tokens.view(-1),
            len(previous.new_tokens[0]),
        )
        slots, most = buffers.previous_batch_indices[:D], buffers.previous_draft_lens[:D]
        accepted, excess = self._counts[0, :D], self._counts[1, :D]
        places, newest = self._places[:D], self._newest[:D]
        tokens = buffers.input_ids[start : start + D * rows].view(D, rows)
        positions = self._positions(start, D, rows)
        limits = buffers.kv_limits[:D].unsqueeze(1)
        next_drafts = self._next_drafts(previous, tokens, positions) if draft_len else None

        def derive() -> None:
            torch.index_select(num_accepted, 0, slots, out=accepted)
            torch.minimum(accepted, most, out=accepted)  # of a step without drafts nobody wrote a count
            torch.sub(most, accepted, out=excess)
            torch.mul(accepted, num_slots, out=places)
            places.add_(slots)
            torch.index_select(samples, 0, places, out=newest)
            tokens[:, 0].copy_(newest)
            positions.sub_(excess.unsqueeze(1))
            torch.minimum(positions, limits, out=positions)
            if next_drafts is not None:
                next_drafts()

        return derive

    def lengths(self, *, start: int, num_sequences: int, draft_len: int) -> Callable[[torch.Tensor], None]:
        """Return the device work that writes the KV lengths of the same sequences, from their corrected positions."""
        positions = self._positions(start, num_sequences, 1 + draft_len)
        limits = self._buffers.kv_limits[:num_sequences]

        def write(kv_lens: torch.Tensor) -> None:
            torch.add(positions[:, -1], 1, out=kv_lens)
            torch.minimum(kv_lens, limits, out=kv_lens)

        return write

    def _positions(self, start: int, num_sequences: int, rows: int) -> torch.Tensor:
        flat = self._buffers.position_ids.view(-1)
        return flat[start : start + num_sequences * rows].view(num_sequences, rows)

    def _next_drafts(
        self, previous: SampleStateTensors, tokens: torch.Tensor, positions: torch.Tensor
    ) -> Callable[[], None]:
        """Return the device work that takes each row's draft from its request's guess, by the row's position."""
        assert previous.guesses is not None, "drafts of unread rows, and no guesses on the device"
        assert previous.guess_starts is not None
        guesses, guess_starts, room = previous.guesses.view(-1), previous.guess_starts, previous.guesses.shape[1]
        D, K = tokens.shape[0], tokens.shape[1] - 1
        slots, starts, rows = self._buffers.previous_batch_indices[:D], self._counts[2, :D], self._places[:D]
        places, drafts = self._draft_places[: D * K], self._drafts[: D * K]

        def take() -> None:
            torch.index_select(guess_starts, 0, slots, out=starts)
            torch.sub(positions[:, 1:], starts.unsqueeze(1), out=places.view(D, K))
            places.clamp_(0, room - 1)  # a slot without a guess has any start
            torch.mul(slots, room, out=rows)
            places.view(D, K).add_(rows.unsqueeze(1))
            torch.index_select(guesses, 0, places, out=drafts)
            tokens[:, 1:].copy_(drafts.view(D, K))

        return take

"""HostInputs: one step in host lists, before anything moves to the device.

One rule lays out the host rows and the device segments: the ``segments`` partition [0, N) into rows whose token
comes from a host list, rows whose token is gathered on the device from the previous sample, and rows that are
zero-filled. Everything is gathered into lists first because one copy per list costs a fraction of one copy per
request.

Does not: build itself (``pack.py``), copy (``prepare.py``), or hold tensors. Source: TensorRT-LLM's host lists of
input preparation; speculative and multimodal lists are left out.
"""

import dataclasses
import enum


class TokenSource(enum.StrEnum):
    """Where the tokens of a segment come from."""

    HOST = "host"
    DEVICE = "device"
    ZERO = "zero"


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """Rows [start, end) of the flat layout with one token source. Empty segments are allowed."""

    source: TokenSource
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class HostInputs:
    """The lists of one step.

    Shapes: input_ids [host rows], position_ids [N], previous_batch_indices [device rows] (slots of the previous
    samples), gather_ids [R] (rows whose logits are wanted), seq_slots [R] (slot of each sample), all others [S].
    Order: contexts, generations without and with a previous sample on the device, dummies.
    """

    input_ids: tuple[int, ...]
    position_ids: tuple[int, ...]
    previous_batch_indices: tuple[int, ...]
    gather_ids: tuple[int, ...]
    seq_slots: tuple[int, ...]
    sequence_lengths: tuple[int, ...]
    prompt_lengths: tuple[int, ...]
    request_ids: tuple[int, ...]
    num_cached_tokens_per_seq: tuple[int, ...]
    block_tables: tuple[tuple[int, ...], ...]
    num_contexts: int
    segments: tuple[Segment, Segment, Segment]

    @property
    def num_tokens(self) -> int:
        """Rows of the step, padding included."""
        return len(self.position_ids)

    def check(self) -> None:
        """Recompute that the lists agree with each other and the segments partition the rows."""
        host, device, zero = self.segments
        assert (host.start, host.end) == (0, len(self.input_ids))
        assert (device.start, device.end) == (host.end, host.end + len(self.previous_batch_indices))
        assert (zero.start, zero.end) == (device.end, self.num_tokens)
        assert sum(self.sequence_lengths) == self.num_tokens
        assert len(self.gather_ids) == len(self.seq_slots)
        lists = (self.prompt_lengths, self.request_ids, self.num_cached_tokens_per_seq, self.block_tables)
        assert all(len(values) == len(self.sequence_lengths) for values in lists)
        assert all(0 <= row < self.num_tokens for row in self.gather_ids)

"""HostInputs: one step in host lists, before anything moves to the device.

One rule lays out the host rows and the device segments: the ``segments`` partition [0, N) into rows whose token
comes from a host list, rows whose token is gathered on the device from the previous sample, and rows that are
zero-filled. Everything is gathered into lists first because one copy per list costs a fraction of one copy per
request.

Rows of a request whose last samples the host has not read are laid out as if every draft had been accepted; the
device corrects them (``draft_rows.py``).

Does not: build itself (``pack.py``), copy (``prepare.py``), or hold tensors. Source: TensorRT-LLM's host lists of
input preparation; multimodal lists are left out.
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
class LogitRows:
    """The rows that are sampled. Shapes: gather_ids [R] (rows of the step), seq_slots [R] (slot of each sample)."""

    gather_ids: tuple[int, ...]
    seq_slots: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class DraftLayout:
    """What drafts change in a step, now or by the samples that are still on the device.

    draft_len: K, the drafts that each generation verifies in this step. previous_draft_lens [device sequences]: of the
    unread step, all of which the layout takes for accepted. kv_limits [S]: KV tokens that a sequence can ever have; a
    row at or behind that position is dead, it writes nothing and its sample is not used.
    """

    draft_len: int
    previous_draft_lens: tuple[int, ...]
    kv_limits: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class HostInputs:
    """The lists of one step.

    Shapes: input_ids [host rows], position_ids [N], previous_batch_indices [device sequences] (slots of the previous
    samples), all others [S]. drafts: None when there are none, and none in the samples on the device.
    Order: contexts, generations without and with a previous sample on the device, dummies.
    """

    input_ids: tuple[int, ...]
    position_ids: tuple[int, ...]
    previous_batch_indices: tuple[int, ...]
    logit_rows: LogitRows
    sequence_lengths: tuple[int, ...]
    prompt_lengths: tuple[int, ...]
    request_ids: tuple[int, ...]
    num_cached_tokens_per_seq: tuple[int, ...]
    block_tables: tuple[tuple[int, ...], ...]
    num_contexts: int
    segments: tuple[Segment, Segment, Segment]
    drafts: DraftLayout | None = None

    @property
    def num_tokens(self) -> int:
        """Rows of the step, padding included."""
        return len(self.position_ids)

    @property
    def gather_ids(self) -> tuple[int, ...]:
        """Rows whose logits are wanted."""
        return self.logit_rows.gather_ids

    @property
    def seq_slots(self) -> tuple[int, ...]:
        """Slot of each logit row's sample."""
        return self.logit_rows.seq_slots

    @property
    def draft_len(self) -> int:
        """Drafts that each generation verifies in this step."""
        return 0 if self.drafts is None else self.drafts.draft_len

    @property
    def num_verify_rows(self) -> int:
        """Rows behind the contexts, when those verify drafts; all of them are logit rows."""
        return (len(self.request_ids) - self.num_contexts) * (1 + self.draft_len) if self.draft_len else 0

    @property
    def first_device_sequence(self) -> int:
        """Sequences in front of those whose tokens are gathered."""
        device, zero = self.segments[1:]
        rows = (self.num_tokens - zero.start) + (device.end - device.start)
        return len(self.request_ids) - rows // (1 + self.draft_len)

    def check(self) -> None:
        """Recompute that the lists agree with each other and the segments partition the rows."""
        host, device, zero = self.segments
        assert (host.start, host.end) == (0, len(self.input_ids))
        device_rows = len(self.previous_batch_indices) * (1 + self.draft_len)
        assert (device.start, device.end) == (host.end, host.end + device_rows)
        assert (zero.start, zero.end) == (device.end, self.num_tokens)
        assert sum(self.sequence_lengths) == self.num_tokens
        assert len(self.gather_ids) == len(self.seq_slots)
        lists = (self.prompt_lengths, self.request_ids, self.num_cached_tokens_per_seq, self.block_tables)
        assert all(len(values) == len(self.sequence_lengths) for values in lists)
        assert all(0 <= row < self.num_tokens for row in self.gather_ids)
        if self.drafts is not None:
            assert len(self.drafts.kv_limits) == len(self.sequence_lengths)
            assert len(self.drafts.previous_draft_lens) == len(self.previous_batch_indices)
            expected = [1 + self.draft_len] * (len(self.sequence_lengths) - self.num_contexts)
            assert list(self.sequence_lengths[self.num_contexts :]) == expected

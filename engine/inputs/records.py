"""The frozen records of the input path that hold tensors.

``ScheduledInputs`` and ``PackedInputs`` enter a runner; ``PreparedInputs`` leaves preparation; ``RunEvent`` tells
what ran. Batch and tensors of the first two are borrowed: their owner keeps them valid until the device is done.

Does not: allocate or copy. Source: TensorRT-LLM's runner interface, in our words.
"""

import dataclasses
import enum

import torch
from jaxtyping import Int32, Int64

from engine.attention.interface import AttentionMetadata
from engine.inputs.steady import SteadyRefusal
from engine.reasons import PathKind
from engine.scheduled import ScheduledRequests


@dataclasses.dataclass(frozen=True, slots=True)
class SampleStateTensors:
    """Where the previous step's samples lie on the device.

    Shapes: new_tokens [1 + K, A, 1] int32, persistent, indexed by sequence slot, not in any graph pool; num_accepted
    [A] int32, of those that were verify rows. guesses [A, any] and guess_starts [A] int32: the drafts that follow.
    Valid: until the next forward writes the same slots.
    """

    new_tokens: Int32[torch.Tensor, "T A 1"]
    num_accepted: Int32[torch.Tensor, " A"] | None = None
    guesses: Int32[torch.Tensor, "A _"] | None = None
    guess_starts: Int32[torch.Tensor, " A"] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ScheduledInputs:
    """A batch that the scheduler made."""

    batch: ScheduledRequests
    step: int
    new_tensors_device: SampleStateTensors | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class PackedInputs:
    """A batch that somebody else packed: sequences to encode, without KV and without a scheduler."""

    input_ids: tuple[int, ...]
    sequence_lengths: tuple[int, ...]


class Writer(enum.StrEnum):
    """Who wrote a span of a persistent buffer in this step."""

    HOST_COPY = "host_copy"
    DEVICE_GATHER = "device_gather"
    IN_PLACE_ADD = "in_place_add"
    ZERO_FILL = "zero_fill"


@dataclasses.dataclass(frozen=True, slots=True)
class BufferWrite:
    """Rows [start, end) of a buffer, and who wrote them this step."""

    buffer: str
    start: int
    end: int
    writer: Writer


@dataclasses.dataclass(frozen=True, slots=True)
class PreparedInputs:
    """One step, ready to run.

    Shapes: input_ids [N] int32, position_ids [P, 1, N] int32, gather_ids [R] int64 (rows whose hidden state
    reaches the LM head), seq_slots [R] int64 (where each logit row's sample goes); views of the persistent
    buffers, cut to the padded step. num_tokens: rows of sequences, padding dummies included; with token padding N is
    larger. draft_len: K; num_verify_rows: the last logit rows, 1 + K for each sequence that verifies drafts.
    Valid: until the next prepare.
    """

    input_ids: Int32[torch.Tensor, " N"]
    position_ids: Int32[torch.Tensor, "P 1 N"]
    gather_ids: Int64[torch.Tensor, " R"]
    seq_slots: Int64[torch.Tensor, " R"]
    attn_metadata: AttentionMetadata
    num_tokens: int
    writes: tuple[BufferWrite, ...]
    draft_len: int = 0
    num_verify_rows: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedItem:
    """One line of a replay check: what was compared, both sides as text, and whether they agree."""

    name: str
    expected: str
    got: str
    passed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayCheck:
    """Everything that was compared before a replay: object identity, counts, shapes, addresses."""

    items: tuple[CheckedItem, ...]

    @property
    def passed(self) -> bool:
        """Whether the replay may go on."""
        return all(item.passed for item in self.items)


@dataclasses.dataclass(frozen=True, slots=True)
class RunEvent:
    """How the forward of the step ran.

    simulated: the graph is the CPU tape. key: text of the graph key, None when eager. pool_bytes: bytes of the
    shared graph pool after the step. steady_refusal: why the step was not derived from the one before, None when it
    was.
    """

    path: PathKind
    simulated: bool
    key: str | None
    check: ReplayCheck | None
    pool_bytes: int
    steady_refusal: SteadyRefusal | None

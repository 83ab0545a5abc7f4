"""The contract between the engine and an attention backend.

``AttentionStep`` is the step in host numbers (frozen, tuples only). ``AttentionMetadata.prepare(step)`` turns it
into the backend's own tensors, in place, at addresses that never change; ``attend`` writes the new keys and
values and computes attention, reading lengths and tables from the device only, so that one graph serves all
lengths. There is one metadata *object* per graph key, held by the graph runner and compared with ``is``.

Rule: position and slot are device facts. KV write and attention take device positions, kv_lens, block_table and
row_to_sequence, never a host slot list, so that device-corrected positions stay right.

Does not: own KV storage (``kv_cache/storage.py``), allocate blocks, or choose rows.
Source: TensorRT-LLM's AttentionMetadata; the object holds tensors and what it derives, never the KV manager.
"""

import abc
import dataclasses
from collections.abc import Callable

import torch

from engine.kv_cache.storage import KVStorage


@dataclasses.dataclass(frozen=True, slots=True)
class KVCacheParams:
    """Per-sequence cache facts of one step. Units: tokens. Order: that of the step's sequences."""

    use_cache: bool
    num_cached_tokens_per_seq: tuple[int, ...]
    num_extra_kv_tokens: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class AttentionStep:
    """One step for the attention backend, in host numbers.

    Shapes: S sequences (padding dummies included), contexts first. seq_lens: query rows of each sequence.
    block_tables: block ids of each sequence, as long as its reservation; unused table entries become block 0.
    padded_num_tokens: rows after token padding, None when no token padding happened.
    max_kv_lens: KV tokens that each sequence can ever have, () where no row lies behind them.
    """

    request_ids: tuple[int, ...]
    seq_lens: tuple[int, ...]
    prompt_lens: tuple[int, ...]
    block_tables: tuple[tuple[int, ...], ...]
    kv_cache_params: KVCacheParams
    num_contexts: int
    num_tokens: int
    padded_num_tokens: int | None = None
    max_kv_lens: tuple[int, ...] = ()

    @property
    def kv_lens(self) -> tuple[int, ...]:
        """Length of each sequence's KV after the step: cached + new, without rows that can only be dead."""
        cached = self.kv_cache_params.num_cached_tokens_per_seq
        lengths = tuple([c + n for c, n in zip(cached, self.seq_lens, strict=True)])
        if not self.max_kv_lens:
            return lengths
        return tuple([min(length, most) for length, most in zip(lengths, self.max_kv_lens, strict=True)])

    @property
    def num_seqs(self) -> int:
        """Sequences of the step."""
        return len(self.seq_lens)


@dataclasses.dataclass(frozen=True, slots=True)
class SteadyStep:
    """The step after the one prepared last, when the same sequences each run one more row and nothing else changed.

    changed_rows: sequences whose block table grew, ascending; changed_tables: their whole new tables, in that order.
    """

    num_seqs: int
    changed_rows: tuple[int, ...] = ()
    changed_tables: tuple[tuple[int, ...], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TensorWrite:
    """Rows [start, end) of a metadata tensor that the last prepare wrote; the others still held the right values.

    in_place_add: they were added to on the device, not copied from the host.
    """

    name: str
    start: int
    end: int
    in_place_add: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class MetadataCapacity:
    """Sizes a metadata object is allocated for.

    max_num_sequences S, max_num_tokens N, max_blocks_per_seq W, tokens_per_block I.
    is_cuda_graph: the object belongs to one graph key; then S and N are that key's exact sizes, every sequence has
    the same number of rows, and seq_lens is constant.
    """

    max_num_sequences: int
    max_num_tokens: int
    max_blocks_per_seq: int
    tokens_per_block: int
    is_cuda_graph: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Rotary:
    """How one layer turns its queries and keys, for a backend that does it itself.

    Shapes: cos and signed_sin [positions, D] (``models/rope.py``), gain [H + G, D] of the norm before the rotation,
    None when there is none; eps belongs to that norm.
    """

    cos: torch.Tensor
    signed_sin: torch.Tensor
    gain: torch.Tensor | None
    eps: float


class AttentionMetadata(abc.ABC):
    """A backend's device-side view of the step.

    Base tensors (every backend has them; int32, on the device, allocated once, written in place by ``prepare``):
    kv_lens [S], seq_lens [S], block_table [S, W], row_to_sequence [N], query_start [S + 1].
    A graph reads exactly these addresses.
    """

    kv_lens: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    row_to_sequence: torch.Tensor
    query_start: torch.Tensor

    capacity: MetadataCapacity

    @property
    @abc.abstractmethod
    def written(self) -> tuple[TensorWrite, ...]:
        """What the last prepare or advance wrote; every other row still held the right value."""

    @property
    @abc.abstractmethod
    def step(self) -> AttentionStep | None:
        """The step last prepared, in host numbers; None before the first."""

    @abc.abstractmethod
    def prepare(self, step: AttentionStep) -> None:
        """Write the step into the tensors, in place.

        Runs on the host before capture or replay, never inside. Rows past the step's are neutral: kv_lens 0,
        row_to_sequence 0, block 0.
        Raises: CapacityError when the step exceeds the capacity.
        """

    @abc.abstractmethod
    def advance(self, step: SteadyStep) -> None:
        """Prepare for the next row of every sequence: kv_lens + 1 in place, and the block tables that grew.

        It costs what changed, not what there is: no Python a sequence.
        Raises: CapacityError when a sequence would outgrow its blocks; the metadata is as before then.
        """

    @abc.abstractmethod
    def derive_kv_lens(self, start: int, end: int, derive: Callable[[torch.Tensor], object]) -> None:
        """Let device work write the lengths of sequences [start, end), in place and behind ``prepare``.

        They may only be lower than what was prepared, which from then on is an upper bound. derive: gets a view of
        kv_lens, and runs in stream order.
        """

    @abc.abstractmethod
    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        position_ids: torch.Tensor,
    ) -> torch.Tensor:
        """Write key and value of this step's rows into layer ``layer``'s blocks, then attend causally.

        Shapes: query [N, H, D] (rope applied), key and value [N, G, D], position_ids [N] int32 -> [N, H, D].
        Rows of sequence s at position p see KV positions 0..p. Capturable: reads lengths from the device only.
        """

    def takes_qkv(self, num_rows: int) -> bool:
        """Whether ``attend_qkv`` serves a step of so many rows as it was prepared; a constant of a graph key."""
        return False

    def attend_qkv(self, layer: int, qkv: torch.Tensor, rotary: Rotary, position_ids: torch.Tensor) -> torch.Tensor:
        """Norm and rotate queries and keys, then as ``attend``. Only where ``takes_qkv`` says so.

        Shapes: qkv [N, (H + 2G) D], position_ids [N] int32 -> [N, H D].
        """
        message = f"{type(self).__name__} takes queries, keys and values apart (attend), and takes_qkv says so"
        raise AssertionError(message)

    @abc.abstractmethod
    def tensors(self) -> dict[str, torch.Tensor]:
        """Name every device tensor that a graph may read; the strict replay check compares their addresses."""


class AttentionBackend(abc.ABC):
    """Makes metadata objects over one KV storage. One instance an engine."""

    name: str

    @abc.abstractmethod
    def make_metadata(self, storage: KVStorage, capacity: MetadataCapacity) -> AttentionMetadata:
        """Allocate a metadata object. Valid: as long as the storage."""

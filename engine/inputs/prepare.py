"""DecoderInputPreparer: host lists into persistent buffers, one pinned copy per list, in place.

It is the only writer of ``DecoderInputBuffers``. The segments of ``HostInputs`` decide who writes which rows of
``input_ids``: one copy of the host tokens, one gather of the previous samples, one zero fill of the dummies. The
record of those writes goes into ``PreparedInputs``, so that an observer can tell a fresh row from a stale one.

Does not: pack, choose a graph, or run. Source: the copy stage of TensorRT-LLM's input preparation.
"""

import dataclasses
from collections.abc import Sequence

import torch

from engine.attention.interface import AttentionMetadata, AttentionStep, KVCacheParams
from engine.device import DeviceSpec, PinnedRing, Stream
from engine.errors import CapacityError
from engine.inputs.draft_rows import DraftRows
from engine.inputs.host_inputs import HostInputs
from engine.inputs.input_buffers import DecoderInputBuffers, StagingRings
from engine.inputs.records import BufferWrite, PreparedInputs, SampleStateTensors, Writer
from engine.ops.advance_rows import advance_rows_


def attention_step(host: HostInputs, padded_num_tokens: int | None = None) -> AttentionStep:
    """Hand the attention backend its part of the host lists. padded_num_tokens: rows after token padding, if any."""
    return AttentionStep(
        request_ids=host.request_ids,
        seq_lens=host.sequence_lengths,
        prompt_lens=host.prompt_lengths,
        block_tables=host.block_tables,
        kv_cache_params=KVCacheParams(use_cache=True, num_cached_tokens_per_seq=host.num_cached_tokens_per_seq),
        num_contexts=host.num_contexts,
        num_tokens=host.num_tokens,
        padded_num_tokens=padded_num_tokens,
        max_kv_lens=() if host.drafts is None else host.drafts.kv_limits,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SteadyInputs:
    """Views for steady steps, made by the full step whose rows they repeat. prepared: the record of every such step."""

    prepared: PreparedInputs
    slots: torch.Tensor
    samples: torch.Tensor


class DecoderInputPreparer:
    """Owns the buffers and their pinned mirrors."""

    def __init__(self, buffers: DecoderInputBuffers, stream: Stream, spec: DeviceSpec) -> None:
        """Allocate the mirrors; the buffers come from outside because the lab shows them."""
        self.buffers = buffers
        self._rings = StagingRings.allocate(buffers, spec)
        self._draft_rows = DraftRows(buffers, spec)
        self._stream = stream

    def copy_inputs(
        self,
        host: HostInputs,
        previous: SampleStateTensors | None,
        metadata: AttentionMetadata,
        *,
        padded_num_tokens: int | None = None,
    ) -> PreparedInputs:
        """Write the step into the buffers and return views of them, cut to the step.

        padded_num_tokens: rows of a prefill bucket; those behind the step's own belong to no sequence and are zeroed.
        Valid: the views until the next call; the writes are ordered on the stream.
        Raises: CapacityError when the step has more rows or sequences than the buffers.
        """
        num_rows = host.num_tokens if padded_num_tokens is None else padded_num_tokens
        self._check_capacity(host, num_rows)
        buffers, num_logits = self.buffers, len(host.gather_ids)
        writes = [*self._write_tokens(host, previous)]
        writes += self._copy("position_ids", self._rings.position_ids, host.position_ids)
        writes += self._derive_rows(host, previous)
        writes += self._zero_tail(host.num_tokens, num_rows)
        writes += self._copy("gather_ids", self._rings.gather_ids, host.gather_ids)
        writes += self._copy("seq_slots", self._rings.seq_slots, host.seq_slots)
        return PreparedInputs(
            input_ids=buffers.input_ids[:num_rows],
            position_ids=buffers.position_ids[..., :num_rows],
            gather_ids=buffers.gather_ids[:num_logits],
            seq_slots=buffers.seq_slots[:num_logits],
            attn_metadata=metadata,
            num_tokens=host.num_tokens,
            writes=tuple(writes),
            draft_len=host.draft_len,
            num_verify_rows=host.num_verify_rows,
        )

    def correct_lengths(self, host: HostInputs, metadata: AttentionMetadata) -> None:
        """Lower the KV lengths of rows that were laid out for the best case; comes behind ``metadata.prepare``."""
        count = len(host.previous_batch_indices)
        if host.drafts is None or not count:
            return
        first, device_rows = host.first_device_sequence, host.segments[1]
        write = self._draft_rows.lengths(start=device_rows.start, num_sequences=count, draft_len=host.draft_len)
        metadata.derive_kv_lens(first, first + count, write)

    def steady_inputs(self, prepared: PreparedInputs, previous: SampleStateTensors) -> SteadyInputs:
        """Make the views with which the steps after a full decode step are derived from it.

        Valid: until the next ``copy_inputs``, which writes the slots of another step.
        """
        rows = prepared.num_tokens
        writes = (
            BufferWrite("input_ids", 0, rows, Writer.DEVICE_GATHER),
            BufferWrite("position_ids", 0, rows, Writer.IN_PLACE_ADD),
        )
        return SteadyInputs(
            prepared=dataclasses.replace(prepared, writes=writes),
            slots=self.buffers.previous_batch_indices[:rows],
            samples=previous.new_tokens[0, :, 0],
        )

    def advance_inputs(self, steady: SteadyInputs) -> PreparedInputs:
        """Derive the next step in place: one gather of the previous samples, positions plus one.

        Nothing comes from the host, so no copy and no mirror is involved. Valid: as ``copy_inputs``.
        """
        prepared = steady.prepared

        self._stream.launch(
            lambda: advance_rows_(prepared.input_ids, prepared.position_ids, steady.samples, steady.slots)
        )
        return prepared

    def wait_for_input_copy(self) -> None:
        """Block until the device has read every pinned mirror."""
        self._rings.wait()

    def _write_tokens(self, host: HostInputs, previous: SampleStateTensors | None) -> list[BufferWrite]:
        _host_rows, device_rows, zero_rows = host.segments
        writes = self._copy("input_ids", self._rings.input_ids, host.input_ids)
        if host.previous_batch_indices:
            assert previous is not None, "device rows without a previous sample"
            writes += self._copy(
                "previous_batch_indices", self._rings.previous_batch_indices, host.previous_batch_indices
            )
            if host.drafts is None:
                target = self.buffers.input_ids[device_rows.start : device_rows.end]
                slots = self.buffers.previous_batch_indices[: len(host.previous_batch_indices)]
                samples = previous.new_tokens[0, :, 0]
                self._stream.launch(lambda: torch.index_select(samples, 0, slots, out=target))
            writes.append(BufferWrite("input_ids", device_rows.start, device_rows.end, Writer.DEVICE_GATHER))
        if zero_rows.end > zero_rows.start:
            # Neither copy reaches the dummies' rows: without this, the graph would read the previous step's tokens.
            padding = self.buffers.input_ids[zero_rows.start : zero_rows.end]
            self._stream.launch(padding.zero_)
            writes.append(BufferWrite("input_ids", zero_rows.start, zero_rows.end, Writer.ZERO_FILL))
        return writes

    def _derive_rows(self, host: HostInputs, previous: SampleStateTensors | None) -> list[BufferWrite]:
        """Correct rows behind samples that the host has not read; without drafts there is nothing to correct."""
        if host.drafts is None or not host.previous_batch_indices:
            return []
        assert previous is not None, "device rows without a previous sample"
        first, count, rows = host.first_device_sequence, len(host.previous_batch_indices), host.segments[1]
        limits = host.drafts.kv_limits[first : first + count]
        writes = self._copy("previous_draft_lens", self._rings.previous_draft_lens, host.drafts.previous_draft_lens)
        writes += self._copy("kv_limits", self._rings.kv_limits, limits)
        self._stream.launch(
            self._draft_rows.derive(previous, start=rows.start, num_sequences=count, draft_len=host.draft_len)
        )
        return [*writes, BufferWrite("position_ids", rows.start, rows.end, Writer.IN_PLACE_ADD)]

    def _zero_tail(self, start: int, end: int) -> list[BufferWrite]:
        """Neutralise the rows of token padding: a chain reads them, and they would hold what an earlier step left."""
        if end <= start:
            return []
        self._stream.launch(self.buffers.input_ids[start:end].zero_)
        self._stream.launch(self.buffers.position_ids[..., start:end].zero_)
        return [BufferWrite(name, start, end, Writer.ZERO_FILL) for name in ("input_ids", "position_ids")]

    def _copy(self, name: str, ring: PinnedRing, values: Sequence[int]) -> list[BufferWrite]:
        if not values:
            return []
        target: torch.Tensor = getattr(self.buffers, name).view(-1)[: len(values)]
        self._stream.copy_(target, ring.stage(values))
        ring.mark_copied(self._stream)
        return [BufferWrite(name, 0, len(values), Writer.HOST_COPY)]

    def _check_capacity(self, host: HostInputs, num_rows: int) -> None:
        rows, logits = self.buffers.input_ids.numel(), self.buffers.gather_ids.numel()
        if num_rows > rows or len(host.gather_ids) > logits:
            message = (
                f"the step needs {num_rows} rows and {len(host.gather_ids)} logit rows, the input buffers hold "
                f"{rows} and {logits}; the scheduler's budgets must not exceed max_num_tokens and max_batch_size"
            )
            raise CapacityError(message)

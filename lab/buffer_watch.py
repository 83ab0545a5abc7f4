"""BufferWatch: who wrote each row of each input tensor last, and when.

The input buffers say what a step wrote; the graphs' statics are filled by a replay's own copies; each metadata object
names its writes. What nobody wrote in a step keeps its writer, and grows older.

Does not: read contents unless it is told to (``freeze.py`` does), or know stages.
Source: the age of every buffer row answers what a stale tail hides; no viewer that we know shows it.
"""

import dataclasses
from typing import Final

import torch

from engine.attention.interface import AttentionMetadata, TensorWrite
from engine.inputs.records import PreparedInputs, RunEvent
from engine.reasons import PathKind
from lab import freeze
from lab.snapshot import BufferView, OriginView, RowsView, WriteView

BEFORE: Final = -1  # a write from before the first recorded step
_PREPARED_BUFFERS: Final = ("input_ids", "position_ids", "gather_ids", "seq_slots")

Origins = tuple[OriginView, ...]


def overwrite(origins: Origins, write: WriteView, step: int) -> Origins:
    """Return the origins after one more write. Order: disjoint and ascending, before and after."""
    if write.end <= write.start:
        return origins
    fresh = OriginView(write.start, write.end, step, write.writer)
    if len(origins) == 1 and origins[0].start == write.start and origins[0].end == write.end:
        return (fresh,)
    kept: list[OriginView] = []
    for old in origins:
        if old.start < write.start:
            kept.append(OriginView(old.start, min(old.end, write.start), old.step, old.writer))
        if old.end > write.end:
            kept.append(OriginView(max(old.start, write.end), old.end, old.step, old.writer))
    kept.append(fresh)
    kept.sort(key=lambda origin: origin.start)
    return tuple(kept)


class BufferWatch:
    """Who wrote each row of each buffer last, over all steps so far."""

    def __init__(self, fixed: freeze.FixedBuffers | None, *, reads_values: bool) -> None:
        """Know no writer yet. reads_values: also copy contents, which waits for the device."""
        self._fixed = fixed
        self._reads_values = reads_values
        self.origins: dict[tuple[int, str], Origins] = {}
        self._facts: dict[tuple[int, str], freeze.TensorFacts] = {}

    def persistent_views(self, rows: RowsView, prepared: PreparedInputs, step: int) -> list[BufferView]:
        """Return the input buffers after the copies of a step."""
        tensors = self._fixed.persistent if self._fixed else {n: getattr(prepared, n) for n in _PREPARED_BUFFERS}
        count, logits = prepared.num_tokens, len(rows.gather_ids)
        live = {"input_ids": count, "position_ids": count, "gather_ids": logits, "seq_slots": logits}
        live["previous_batch_indices"] = int((rows.source_slots >= 0).sum())  # a verify row gathers one token
        writes: dict[str, list[WriteView]] = {}
        for write in prepared.writes:
            writes.setdefault(write.buffer, []).append(WriteView(write.start, write.end, write.writer.value))
        return [
            self._view(_Place("persistent", 0, name), tensor, live.get(name, 0), tuple(writes.get(name, ())), step=step)
            for name, tensor in tensors.items()
        ]

    def metadata_views(self, metadata: AttentionMetadata, step: int) -> list[BufferView]:
        """Return the metadata's own tensors and the rows of them that ``prepare`` wrote."""
        assert metadata.step is not None
        sequences, rows = metadata.step.num_seqs, metadata.step.num_tokens
        live = {"kv_lens": sequences, "seq_lens": sequences, "block_table": sequences}
        live |= {"row_to_sequence": rows, "query_start": sequences + 1}
        widest = max(map(len, metadata.step.block_tables), default=0)
        views: list[BufferView] = []
        for name, count in live.items():
            tensor: torch.Tensor = getattr(metadata, name)
            place = _Place("metadata", id(metadata), name)
            if (place.owner, name) not in self.origins:  # written at warm-up, or before the recorder came
                whole = WriteView(0, len(tensor), "host_copy")
                self.origins[place.owner, name] = overwrite((), whole, BEFORE)
            writes = tuple([_write_view(write) for write in metadata.written if write.name == name])
            views.append(self._view(place, tensor, count, writes, step=step, num_columns=widest))
        return views

    def static_views(self, event: RunEvent, num_rows: int, step: int) -> list[BufferView]:
        """Return the graphs' inputs; a replay begins by copying the step's rows into its own, an eager run does not."""
        views: list[BufferView] = []
        fixed = self._fixed or freeze.FixedBuffers({}, {})
        groups = ((1, PathKind.REPLAY, fixed.static), (2, PathKind.PREFILL_REPLAY, fixed.prefill))
        for owner, path, tensors in groups:
            live = num_rows if event.path is path else 0
            writes = (WriteView(0, live, "device_copy"),) if live else ()
            views += [self._view(_Place("static", owner, n), t, live, writes, step=step) for n, t in tensors.items()]
        return views

    def _view(
        self,
        place: "_Place",
        tensor: torch.Tensor,
        live_rows: int,
        writes: tuple[WriteView, ...],
        *,
        step: int,
        num_columns: int | None = None,
    ) -> BufferView:
        key = (place.owner, place.name)
        origins = self.origins.get(key, ())
        for write in writes:
            origins = overwrite(origins, write, step)
        self.origins[key] = origins
        facts = self._facts.get(key)
        if facts is None:
            facts = self._facts[key] = freeze.tensor_facts(tensor)
        return BufferView(
            name=place.name,
            layer=place.layer,
            address=tensor.data_ptr(),  # read anew every step: that it never changes is to be seen, not assumed
            capacity=facts.capacity,
            dtype=facts.dtype,
            live_rows=live_rows,
            writes=writes,
            origins=origins,
            values=freeze.tensor_values(tensor, live_rows, num_columns) if self._reads_values else None,
        )

    def check(self) -> None:
        """Recompute: origins are disjoint and ascending."""
        for origins in self.origins.values():
            ends = [0, *(origin.end for origin in origins)]
            assert all(o.start >= end and o.end > o.start for o, end in zip(origins, ends, strict=False))


def _write_view(write: TensorWrite) -> WriteView:
    return WriteView(write.start, write.end, "in_place_add" if write.in_place_add else "host_copy")


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Which buffer: its layer, its owner (the identity of a metadata object, else 0 or 1) and its name."""

    layer: str
    owner: int
    name: str

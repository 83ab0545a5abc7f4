"""Whether a decoded step can be a step: columns of one length, codes that have a name, ranges within bounds.

A trace file is read anywhere and may be damaged so that every column decodes and the whole makes no sense; a reader
would then stumble somewhere in a figure. Does not: check that a step is *right*; only a run can tell.
"""

from typing import Final

import numpy as np

from engine.fields import shown
from engine.reasons import PathKind
from lab.ledger import COPY_KINDS, NO_NODE
from lab.snapshot import (
    LAYERS,
    ROW_KINDS,
    ROW_SOURCES,
    STAGES,
    WRITERS,
    BufferView,
    MetadataView,
    RowsView,
    StepSnapshot,
)

_MOST_ROWS: Final = 1 << 26  # of one buffer
_MOST_STEPS: Final = (1 << 31) - 1
_PATHS: Final = frozenset(kind.value for kind in PathKind)


def require_coherent(step: StepSnapshot) -> None:
    """Raise ValueError, which names the part, for a step that cannot be one."""
    _names(step)
    _rows(step.rows)
    _metadata(step.metadata)
    for view in step.buffers:
        _buffer(view)
    if step.graph.path not in _PATHS or not 0 <= step.step <= _MOST_STEPS:
        message = f"step {step.step} on the path {step.graph.path!r} is impossible"
        raise ValueError(message)
    _overlap_and_ledger(step)
    if step.host_us.shape != (len(STAGES),) or step.host_us.dtype.kind != "f":
        message = f"host_us has shape {step.host_us.shape}, not one time for each of {len(STAGES)} stages"
        raise ValueError(message)


def _names(step: StepSnapshot) -> None:
    spans = (*step.schedule.spans, *step.schedule.asked)
    for what, names, known in (
        ("row kind", {span.kind for span in spans}, ROW_KINDS),
        ("copy kind", {copy.kind for copy in step.reservation.copies}, COPY_KINDS),
    ):
        other = sorted(names.difference(known))
        if other:
            message = f"step {step.step} has the {what} {shown(other[0])}, not one of {', '.join(known)}"
            raise ValueError(message)


def _equal_lengths(part: str, columns: dict[str, np.ndarray]) -> int:
    for name, column in columns.items():
        if column.ndim != 1 or column.dtype.kind not in "iu":
            message = f"{part}.{name} is no column of integers"
            raise ValueError(message)
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        message = f"the columns of {part} have lengths {sorted(lengths)}"
        raise ValueError(message)
    return lengths.pop()


def _rows(rows: RowsView) -> None:
    names = ("request_ids", "kinds", "token_ids", "positions", "sources", "source_slots")
    count = _equal_lengths("rows", {name: getattr(rows, name) for name in names})
    _equal_lengths("gather_ids", {"gather_ids": rows.gather_ids})
    for name, codes, limit in (
        ("kinds", rows.kinds, len(ROW_KINDS)),
        ("sources", rows.sources, len(ROW_SOURCES)),
        ("gather_ids", rows.gather_ids, count),
    ):
        if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < limit:
            message = f"rows.{name} holds {int(codes.min())} to {int(codes.max())}, below {limit} is possible"
            raise ValueError(message)


def _metadata(metadata: MetadataView) -> None:
    names = ("request_ids", "seq_lens", "cached_lens", "kv_lens", "prompt_lens", "seq_slots")
    count = _equal_lengths("metadata", {name: getattr(metadata, name) for name in names})
    if len(metadata.block_tables) != count:
        message = f"metadata has {len(metadata.block_tables)} block tables for {count} sequences"
        raise ValueError(message)


def _buffer(view: BufferView) -> None:
    spans = [(span.start, span.end, span.writer) for span in (*view.writes, *view.origins)]
    known = all(0 <= start <= end <= _MOST_ROWS and writer in WRITERS for start, end, writer in spans)
    known = known and all(-1 <= origin.step <= _MOST_STEPS for origin in view.origins)
    if not known or not 0 <= view.live_rows <= _MOST_ROWS or view.layer not in LAYERS:
        message = f"buffer {view.name!r} has impossible rows, writers or layer"
        raise ValueError(message)


def _overlap_and_ledger(step: StepSnapshot) -> None:
    flight, rows = step.graph.flight, step.rows.num_rows
    if len(flight.order) not in (0, len(STAGES)) or not all(0 <= a < b <= rows for a, b, _ in flight.late):
        message = f"step {step.step} has impossible late rows, or an order of {len(flight.order)} stages"
        raise ValueError(message)
    for view in (step.reservation.ledger, step.outcome.ledger):
        if view is None:
            continue
        blocks = [one.block for one in view.owners] + [block for place in view.places for block in place.blocks]
        host = [place.host_block for place in view.places if place.host_block != NO_NODE]
        if not all(0 <= block < view.num_blocks for block in blocks) or view.num_blocks > _MOST_ROWS:
            message = f"the ledger of step {step.step} names blocks beyond its {view.num_blocks}"
            raise ValueError(message)
        if not all(0 <= block < view.num_host_blocks for block in host):
            message = f"the ledger of step {step.step} names host blocks beyond its {view.num_host_blocks}"
            raise ValueError(message)

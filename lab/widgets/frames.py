"""Frames: recorded steps as the compact JSON that the browser draws, shipped once and appended to when live.

A frame is a dict of short lists in a fixed order (below); what follows from others is left out and derived in
``esm/store.js``. Block tables travel as changes; checks and conditions that an earlier frame has, as its index. Long
chunks keep their first and last tokens. The whole is deflated: about 250 bytes a step of batch 8.

    s step   sch spans [request, kind, start, rows, logits], paused, def [request, reason, needed, available],
             bud [rows, max, requests, max, free blocks], prom, k drafts a row, asked [request, start, rows]
    res      cred, slots, add, free, cp copies [kind, source, target, tokens], led the ledger's changes, or null
    rows     [request, kind, source, slot, first position, count, tokens]     gid rows with logits
    buf      [buffer, live, origins [start, end, step, writer], values or null]
    meta     obj, be, rid, q, cached, slots, nctx, n, padded      bt [request, kept, added]
    path     key, reason, bucket, n, cond [reason, passed, needed, got] or a frame, args of the reason's words
             needed and got, and what a check names and compares: a text, or (id, arguments) where it has words
    run      path, sim, key, pool, check or a frame, steady (why not, or ""), fl [order, unread, late, device times]
    out      tok, txt, fin, cont, freed, acc [request, drafts accepted], led      marks [row, what is wrong with it]
    us       host time by stage      say, chg sentences      gap
    led      owners [block, requests ...], nodes [node, parent, tokens, label], places [node, host block, blocks ...],
             removed nodes, blocks, host blocks

Does not: choose sentences (``narration.py``), hold words, or touch a widget.
Source: columnar traces shipped once; stepping in the browser costs 2 ms where a kernel round trip costs 73.
"""

import json
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from lab.collector import collector_held
from lab.condition_words import recognised
from lab.ledger import LedgerView
from lab.ledger_history import picked
from lab.outline import IMPORTED
from lab.reason_numbers import reason_arguments
from lab.snapshot import LAYERS, ROW_KINDS, WRITERS, BufferView, IntArray, MetadataView, RowsView, StepSnapshot
from lab.trace import RequestRecord, RowMark, Trace, TraceHeader
from lab.trace_summary import path_word
from lab.widgets.header import encode_header
from lab.widgets.masks import TELLS
from lab.widgets.narration import changes, sentences
from lab.widgets.outline_frames import outlined

HEAD_TOKENS: Final = 24  # the same numbers stand in esm/panel_rows.js
TAIL_TOKENS: Final = 8
MAX_VALUES: Final = 32  # cells of a buffer that are drawn, esm/panel_buffers.js
MAX_GATHERED: Final = 256
MAX_PROMPT_CHARACTERS: Final = 400
_WRITER_CODES: Final = {name: code for code, name in enumerate(WRITERS)}

Json = dict[str, Any]


def deflate(part: Json) -> bytes:
    """Pack a part for the wire."""
    return zlib.compress(json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode(), 6)


class FrameEncoder:
    """Encodes the steps of one run in order, and keeps what it encoded for a view that joins later."""

    def __init__(self, trace: Trace) -> None:
        """Encode the steps recorded so far."""
        self.header = {**encode_header(trace), "tells": {name: list(parts) for name, parts in TELLS.items()}}
        self.frames: list[Json] = []
        self._buckets = tuple(trace.header.buckets)
        self._tables: dict[int, tuple[int, ...]] = {}
        self._buffers: dict[tuple[Any, ...], int] = {}
        self._logs: dict[str, list[tuple[int, Any]]] = {"requests": [], "texts": [], "buffers": []}
        self._shipped: set[tuple[str, int]] = set()
        self._spelled: dict[tuple[Any, ...], int] = {}  # checks and conditions, and the frame that spells them out
        self._previous: StepSnapshot | None = None
        self._marks: dict[int, list[RowMark]] = {}
        for mark in trace.marks:
            self._marks.setdefault(mark.step, []).append(mark)
        self.extend(trace.steps, trace.header)

    @property
    def last_step(self) -> int:
        """The number of the last step, -1 before the first."""
        return -1 if self._previous is None else self._previous.step

    def extend(self, steps: Iterable[StepSnapshot], header: TraceHeader) -> None:
        """Encode further steps; those already here are left out."""
        for request in header.requests:
            self._log("requests", request.request_id, lambda r=request: _request(r, was_cut=header.num_dropped > 0))
        for token, text in header.pieces.items():
            self._log("texts", token, lambda t=token, s=text: [t, s])
        with collector_held():
            for step in steps:
                if step.step > self.last_step:
                    self.frames.append(self._frame(step))
                    self._previous = step

    def part(self, first: int = 0) -> Json:
        """Return the frames from index ``first`` on, with the names that a view which has the others lacks."""
        logs = {name: [entry for at, entry in log if at >= first] for name, log in self._logs.items()}
        return {"header": self.header, **logs, "frames": self.frames[first:]}

    def index_after(self, step: int) -> int:
        """Return the index of the first frame later than ``step``."""
        return next((at for at, frame in enumerate(self.frames) if frame["s"] > step), len(self.frames))

    def _log(self, name: str, key: int, make: Any) -> None:
        if (name, key) not in self._shipped:
            self._shipped.add((name, key))
            self._logs[name].append((len(self.frames), make()))

    def _frame(self, step: StepSnapshot) -> Json:
        gap = self._previous is not None and step.step != self._previous.step + 1
        marks = self._marks.get(step.step, [])
        frame: Json = {
            "s": step.step,
            "sch": _schedule(step),
            "res": {
                "cred": [list(credit) for credit in step.reservation.credits],
                "slots": [list(slot) for slot in step.reservation.slots],
                "add": [[request_id, list(blocks)] for request_id, blocks in step.reservation.new_blocks],
                "free": step.reservation.num_free_blocks,
                "cp": [[copy.kind, copy.source, copy.target, copy.num_tokens] for copy in step.reservation.copies],
                "led": _ledger(step.reservation.ledger),
            },
            "rows": _row_groups(step.rows),
            "gid": step.rows.gather_ids[:MAX_GATHERED].tolist(),
            "buf": [self._buffer(view) for view in step.buffers],
            "meta": _metadata(step.metadata),
            "bt": self._table_changes(step),
            **self._path_and_run(step),
            "marks": [[mark.row, _fact(mark.text)] for mark in marks],
            "out": _outcome(step),
            "us": [None if math.isnan(us) else round(us) for us in step.host_us.tolist()],
            "say": sentences(step, self._buckets, gap=gap, num_wrong=len(marks)),
            "chg": changes(step, self._previous),
            "gap": gap,
        }
        return outlined(frame, step) if step.mode == IMPORTED else frame

    def _path_and_run(self, step: StepSnapshot) -> Json:
        path, graph, flight = step.path, step.graph, step.graph.flight
        verdict = {True: 1, False: 0, None: None}
        return {
            "path": {
                "key": path.key,
                "reason": path.reason,
                "bucket": path.bucket,
                "n": path.num_requests,
                "cond": self._once(
                    path.conditions, lambda c: [c.reason, verdict[c.passed], _fact(c.needed), _fact(c.got)]
                ),
                "args": reason_arguments(step, self._buckets) if path.reason is not None else {},
            },
            "run": {
                "path": path_word(step),
                "sim": graph.simulated,
                "key": graph.key,
                "pool": graph.pool_bytes,
                "steady": graph.steady,
                "check": self._once(graph.check, lambda c: [*map(_fact, (c.name, c.expected, c.got)), int(c.passed)]),
                "fl": [_order(flight.order), list(flight.unread), [list(run) for run in flight.late], flight.device_us],
            },
        }

    def _once(self, lines: tuple[Any, ...], encode_line: Callable[[Any], list[Any]]) -> list[Any] | int:
        """Return the lines, or the index of the frame that has the same ones: most steps repeat them."""
        at = self._spelled.setdefault(lines, len(self.frames)) if lines else len(self.frames)
        return at if at < len(self.frames) else [encode_line(line) for line in lines]

    def _buffer(self, view: BufferView) -> list[Any]:
        key = (view.layer, view.name, view.address, view.capacity, view.dtype)
        if key not in self._buffers:
            self._buffers[key] = len(self._buffers)
            entry = [self._buffers[key], view.name, view.layer, view.address, view.capacity, view.dtype]
            self._logs["buffers"].append((len(self.frames), entry))
        assert view.layer in LAYERS
        return [
            self._buffers[key],
            view.live_rows,
            [[o.start, o.end, o.step, _WRITER_CODES[o.writer]] for o in view.origins],
            None if view.values is None else _values(view.values),
        ]

    def _table_changes(self, step: StepSnapshot) -> list[list[Any]]:
        changed: list[list[Any]] = []
        for request_id, table in zip(step.metadata.request_ids.tolist(), step.metadata.block_tables, strict=True):
            before = self._tables.get(request_id, ())
            if table == before:
                continue
            kept = next((at for at, (a, b) in enumerate(zip(before, table, strict=False)) if a != b), None)
            kept = min(len(before), len(table)) if kept is None else kept
            changed.append([request_id, kept, list(table[kept:])])
            self._tables[request_id] = table
        for request_id in step.schedule.paused:
            changed.append([request_id, 0, []])
            self._tables.pop(request_id, None)
        return changed


def _fact(text: str) -> str | list[Any]:
    """Return what has words in both languages as their id and arguments, and any other text as it is."""
    return text if (fact := recognised(text)) is None else list(fact)


def _request(request: RequestRecord, *, was_cut: bool) -> Json:
    return {
        "id": request.request_id,
        "arrival": request.arrival_step,
        "prompt": request.num_prompt_tokens,
        "max": int(request.params.get("max_tokens") or 0),
        "text": (request.prompt_text or "")[-MAX_PROMPT_CHARACTERS:],
        "before": "…" if was_cut else "",
    }


def _schedule(step: StepSnapshot) -> Json:
    schedule, budget = step.schedule, step.schedule.budget
    return {
        "spans": [
            [s.request_id, ROW_KINDS.index(s.kind), s.start, s.num_rows, s.num_logit_rows] for s in schedule.spans
        ],
        "paused": list(schedule.paused),
        "def": [[d.request_id, d.reason, d.needed, d.available] for d in schedule.deferrals],
        "bud": [
            budget.num_tokens,
            budget.max_num_tokens,
            budget.num_requests,
            budget.max_batch_size,
            budget.num_free_blocks,
        ],
        "prom": [] if step.path.key is None else list(schedule.promoted),  # without a graph nobody runs as promoted
        "k": schedule.draft_len,
        "asked": [[span.request_id, span.start, span.num_rows] for span in schedule.asked],
    }


def _ledger(view: LedgerView | None) -> list[Any] | None:
    if view is None:
        return None
    return [
        [[one.block, *one.request_ids] for one in view.owners],
        [[node.node, node.parent, list(node.tokens), node.label] for node in view.added],
        [[place.node, place.host_block, *place.blocks] for place in view.places],
        list(view.removed),
        view.num_blocks,
        view.num_host_blocks,
    ]


def _row_groups(rows: RowsView) -> list[list[Any]]:
    """Cut the flat layout where request, kind or source changes or a position does not follow the one before."""
    if not rows.num_rows:
        return []
    ids, kinds, sources, positions = rows.request_ids, rows.kinds, rows.sources, rows.positions
    follows = (ids[1:] == ids[:-1]) & (kinds[1:] == kinds[:-1]) & (sources[1:] == sources[:-1])
    follows &= positions[1:] == positions[:-1] + 1
    starts = np.flatnonzero(np.concatenate(([True], ~follows)))
    ends = [*starts[1:].tolist(), rows.num_rows]
    firsts = zip(
        *[column[starts].tolist() for column in (ids, kinds, sources, rows.source_slots, positions)], strict=True
    )
    runs = zip(firsts, starts.tolist(), ends, strict=True)
    return [[*first, end - start, _shown_tokens(rows.token_ids[start:end])] for first, start, end in runs]


def _shown_tokens(token_ids: IntArray) -> list[int]:
    tokens: list[int] = token_ids.tolist()
    return tokens if len(tokens) <= HEAD_TOKENS + TAIL_TOKENS else tokens[:HEAD_TOKENS] + tokens[-TAIL_TOKENS:]


def _values(values: np.ndarray[Any, Any]) -> list[Any]:
    shown = values[:MAX_VALUES]
    if shown.ndim == 1:
        return shown.tolist()
    return [f"{row[0]}…" if len(row) > 1 else str(row[0]) for row in shown.tolist() if row]


def _metadata(metadata: MetadataView) -> Json:
    return {
        "obj": metadata.object_id,
        "be": metadata.backend,
        "rid": metadata.request_ids.tolist(),
        "q": metadata.seq_lens.tolist(),
        "cached": metadata.cached_lens.tolist(),
        "slots": metadata.seq_slots.tolist(),
        "nctx": metadata.num_contexts,
        "n": metadata.num_tokens,
        "padded": metadata.padded_num_tokens,
    }


def _order(order: Sequence[int]) -> list[int]:
    """Return when the stages came: the first number alone where the others follow it one by one."""
    is_run = bool(order) and list(order) == list(range(order[0], order[0] + len(order)))
    return list(order[:1]) if is_run else list(order)


def _outcome(step: StepSnapshot) -> Json:
    outcome = step.outcome
    return {
        "tok": [list(token) for token in outcome.tokens],
        "txt": [list(text) for text in outcome.new_text if text[1]],
        "fin": [list(end) for end in outcome.finished],
        "cont": list(outcome.continued),
        "freed": list(outcome.freed),
        "acc": [list(pair) for pair in outcome.accepted],
        "led": _ledger(outcome.ledger),
    }


def encode(trace: Trace, indices: Sequence[int] | None = None) -> bytes:
    """Return a whole trace for the wire; indices: only these of its steps."""
    steps = trace.steps if indices is None else picked(trace.steps, indices)
    return deflate(FrameEncoder(Trace(trace.header, steps, trace.marks)).part())

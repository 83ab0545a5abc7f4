"""DecodeBatch: a batch of generations that repeats, so that a step of it costs a few array operations.

While the same requests run, each adds one row a step: starts go up by one, and blocks are needed only by rows whose
last block is full. Who gets them, and when, is decided here, since no scheduler is asked.

Does not: schedule, own blocks, or survive a change of the batch: the loop makes a new one. Torch-free.
Source: own; the idea is that of the steady path of input preparation, one level up.
"""

import dataclasses
from typing import Final

import numpy as np

from engine.executor.decode_rows import DecodeRows
from engine.kv_cache.manager import KVCacheManager
from engine.scheduled import GenerationSpans, RowKind, ScheduledRequests, Span

_BURST: Final = 4  # steps between two times that rows get blocks before they must
_NO_ROWS: Final = np.array([], dtype=np.int64)


class DecodeBatch:
    """The rows of a repeating batch, in row order. Units: KV tokens.

    rows: of its newest step. scheduled: the record of the step it was made for; the next steps' are derived from it.
    """

    def __init__(self, scheduled: ScheduledRequests, rows: DecodeRows, kv_cache: KVCacheManager) -> None:
        """Begin at a step that was launched."""
        self.rows = rows
        self._scheduled = scheduled
        self._num_steps = 0  # launched since
        self._tokens_per_block = kv_cache.tokens_per_block
        reserved = [_reserved_tokens(kv_cache, request.request_id) for request in rows.requests]
        self._room = np.array(reserved, dtype=np.int64) - rows.starts - 1
        self._growth = self._blocks = _NO_ROWS  # rows that get blocks with the next step, and how many
        self._num_launchable = rows.num_left  # rows of each behind the step it was made for
        self._steps_left = int(self._num_launchable.min())  # that may be launched until one has all its tokens

    @property
    def can_repeat(self) -> bool:
        """Whether the same rows may run once more: none has all its tokens on the way."""
        return self._steps_left > 0

    def choose_growth(self, num_free_blocks: int) -> bool:
        """Choose the rows that get blocks with the next step; False when there are too few blocks.

        Rows whose blocks are full must. Where there are blocks for all that the batch may still need, those that are
        next to be full get theirs early, two at a time and in every fourth step: most steps then change no table, and
        requests that came together do not grow together, which the device would wait for. No row gets a block that it
        would not need to its end.
        """
        room = self._room
        chosen = np.flatnonzero(room < 1)
        num_left = self._num_launchable - self._num_steps  # rows of each that may still be launched
        has_plenty = self._num_steps % _BURST == 0 and self._num_lacking(num_left) <= num_free_blocks
        if has_plenty:
            due = np.flatnonzero((room < self._tokens_per_block) & (num_left > room))
            if len(due):
                num_bursts = max(1, int(room[due].min()) // _BURST)  # that come before the first of them is full
                most = max(len(chosen), -(-len(due) // num_bursts))
                chosen = np.sort(due[np.argsort(room[due], kind="stable")[:most]])
        blocks = -(-(num_left[chosen] - room[chosen]) // self._tokens_per_block)
        self._growth, self._blocks = chosen, np.clip(blocks, 1, 2 if has_plenty else 1)
        return int(self._blocks.sum()) <= num_free_blocks

    def _num_lacking(self, num_left: np.ndarray) -> int:
        """Count the blocks that the rows may still ask for."""
        return int(np.maximum(-(-(num_left - self._room) // self._tokens_per_block), 0).sum())

    def spans_to_grow(self) -> tuple[Span, ...]:
        """Lay out, for the managers alone, the chosen rows up to the first token that needs the last new block."""
        rows = 1 + np.maximum(self._room[self._growth], 0) + (self._blocks - 1) * self._tokens_per_block
        starts, requests = (self.rows.starts[self._growth] + 1).tolist(), self.rows.requests
        grown = zip(self._growth.tolist(), starts, rows.tolist(), strict=True)
        return tuple([Span(requests[row], RowKind.GENERATION, start, num_rows, 1) for row, start, num_rows in grown])

    def launch(self, num_free_blocks: int) -> ScheduledRequests:
        """Take the next step: every row moves on by one, the chosen ones have got a block. Returns its record."""
        self.rows = self.rows.moved()
        self._num_steps += 1
        self._steps_left -= 1
        self._room -= 1
        self._room[self._growth] += self._blocks * self._tokens_per_block
        self._growth = self._blocks = _NO_ROWS
        return self.record(num_free_blocks)

    def record(self, num_free_blocks: int) -> ScheduledRequests:
        """Make the record of the newest step; its spans are made when somebody looks."""
        spans = GenerationSpans(self.rows.requests, self.rows.starts)
        budget = dataclasses.replace(self._scheduled.budget, num_free_blocks=num_free_blocks)
        return dataclasses.replace(self._scheduled, generation_requests=spans, budget=budget)

    def check(self, kv_cache: KVCacheManager) -> None:
        """Count again from the requests."""
        for row, request in enumerate(self.rows.requests):
            start = int(self.rows.starts[row])
            assert start + 1 == request.num_tokens - 1 + request.num_in_flight, f"row {row} starts elsewhere"
            room = _reserved_tokens(kv_cache, request.request_id) - start - 1
            assert int(self._room[row]) == room, f"row {row} has room for {room} tokens, not {self._room[row]}"
        assert self._steps_left == int(self.rows.num_left.min())


def _reserved_tokens(kv_cache: KVCacheManager, request_id: int) -> int:
    return kv_cache.num_reserved_blocks(request_id) * kv_cache.tokens_per_block

"""DecodeBatch: a batch of generations that repeats, counted in numpy instead of asked request by request.

While the same requests run, each adds one row a step. What a step needs of them is known from the step before: starts
go up by one, blocks are needed only by rows whose last block is full, and nobody can end but by a stop id or by the
count that says so here. A step of the loop then costs a few array operations and what really changed.

Does not: schedule, own blocks, or survive a change of the batch: the loop makes a new one. Torch-free.
Source: own; the idea is that of the steady path of input preparation, one level up.
"""

import dataclasses
from collections.abc import Collection
from typing import Final

import numpy as np

from engine.executor.live import LiveRequest
from engine.kv_cache.manager import KVCacheManager
from engine.scheduled import ScheduledRequests, Span, SteadySpans

_BURST: Final = 4  # steps between two times that rows get blocks before they must
_NO_ROWS: Final = np.array([], dtype=np.int64)


@dataclasses.dataclass(frozen=True, slots=True)
class _Ends:
    """How each row can end. stops_at_eos: by an id of the model. watched: rows whose every token must be looked at."""

    stops_at_eos: np.ndarray
    watched: np.ndarray


class DecodeBatch:
    """The rows of a repeating batch, in row order. Units: KV tokens.

    scheduled: the record of the step it was made for; the next steps' are derived from it.
    """

    def __init__(
        self,
        scheduled: ScheduledRequests,
        lives: tuple[LiveRequest, ...],
        kv_cache: KVCacheManager,
        *,
        eos_table: np.ndarray,
        eos_ids: Collection[int],
    ) -> None:
        """Look at every request once. eos_table: [V] bool, the model's stop ids; eos_ids: the same as a set."""
        self.lives = lives
        self.requests = tuple([live.request for live in lives])
        self._scheduled = scheduled
        self._starts = tuple([span.start for span in scheduled.generation_requests])
        self._num_steps = 0  # launched since
        self.slots = np.array([request.py_seq_slot for request in self.requests], dtype=np.int64)
        self._appends = tuple([request.generated.append for request in self.requests])
        self._tokens_per_block = kv_cache.tokens_per_block
        reserved = [_reserved_tokens(kv_cache, request.request_id) for request in self.requests]
        self._room = np.array(reserved, dtype=np.int64) - np.array(self._starts, dtype=np.int64) - 1
        left = [r.max_new_tokens - r.num_generated - r.num_in_flight for r in self.requests]
        self._growth = self._blocks = _NO_ROWS  # rows that get blocks with the next step, and how many
        self._num_launchable = np.array(left, dtype=np.int64)  # rows of each behind the step it was made for
        self._steps_left = min(left)  # that may be launched until one of them has all its tokens
        self._tokens_left = np.array(left, dtype=np.int64)  # behind the last step before this batch
        self.is_intact = True  # every row is live, and every step since was counted here
        self._eos_table = eos_table
        self._ends = _ends(lives, frozenset(eos_ids))

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
        spans = SteadySpans(self.requests, self._starts, self._num_steps + 1)
        rows = 1 + np.maximum(self._room[self._growth], 0) + (self._blocks - 1) * self._tokens_per_block
        grown = [(spans[row], num_rows) for row, num_rows in zip(self._growth.tolist(), rows.tolist(), strict=True)]
        return tuple([Span(span.request, span.kind, span.start, num_rows, 1) for span, num_rows in grown])

    def launch(self, num_free_blocks: int) -> ScheduledRequests:
        """Take the next step: every row moves on by one, the chosen ones have got a block. Returns its record."""
        self._num_steps += 1
        self._steps_left -= 1
        self._room -= 1
        self._room[self._growth] += self._blocks * self._tokens_per_block
        self._growth = self._blocks = _NO_ROWS
        return self.record(num_free_blocks)

    def record(self, num_free_blocks: int) -> ScheduledRequests:
        """Make the record of the newest step; its spans are made when somebody looks."""
        spans = SteadySpans(self.requests, self._starts, self._num_steps)
        budget = dataclasses.replace(self._scheduled.budget, num_free_blocks=num_free_blocks)
        return dataclasses.replace(self._scheduled, generation_requests=spans, budget=budget)

    def count_step(self) -> None:
        """Note that a step of this batch has become final."""
        self._tokens_left -= 1

    def take(self, tokens: np.ndarray) -> list[int]:
        """Append one token to every row that cannot end by it; return the others, whose tokens are not appended.

        Shapes: tokens [rows] int32.
        """
        self.count_step()
        ends = self._ends
        looked_at = (self._tokens_left < 1) | ends.watched | (ends.stops_at_eos & self._eos_table[tokens])
        rows: list[int] = np.flatnonzero(looked_at).tolist()
        values: list[int] = tokens.tolist()
        for request in self.requests:
            request.num_in_flight -= 1
        if not rows:
            for append, token in zip(self._appends, values, strict=True):
                append(token)
            return rows
        apart = set(rows)
        for row, (append, token) in enumerate(zip(self._appends, values, strict=True)):
            if row not in apart:
                append(token)
        return rows

    def check(self, kv_cache: KVCacheManager) -> None:
        """Count again from the requests."""
        for row, request in enumerate(self.requests):
            start = self._starts[row] + self._num_steps
            assert start + 1 == request.num_tokens - 1 + request.num_in_flight, f"row {row} starts elsewhere"
            room = _reserved_tokens(kv_cache, request.request_id) - start - 1
            assert int(self._room[row]) == room, f"row {row} has room for {room} tokens, not {self._room[row]}"
            assert int(self._tokens_left[row]) <= request.max_new_tokens - request.num_generated


def _reserved_tokens(kv_cache: KVCacheManager, request_id: int) -> int:
    return kv_cache.num_reserved_blocks(request_id) * kv_cache.tokens_per_block


def _ends(lives: tuple[LiveRequest, ...], eos_ids: frozenset[int]) -> _Ends:
    stops_at_eos, watched = np.zeros(len(lives), dtype=bool), np.zeros(len(lives), dtype=bool)
    for row, live in enumerate(lives):
        checker = live.stop_checker
        stops_at_eos[row] = checker.stop_ids == eos_ids and bool(eos_ids)
        has_other_ids = bool(checker.stop_ids) and not stops_at_eos[row]
        watched[row] = checker.reads_text or has_other_ids or live.request.spec.params.logprobs is not None
    return _Ends(stops_at_eos, watched)

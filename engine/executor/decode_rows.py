"""DecodeRows: the plain decode rows of one step, in numpy, so that 256 of them are not asked one by one.

What the loop wants to know of a row follows from its position and from facts that stay the same while its request
runs: where its last token comes from, which ids end it. So the rows of a step are those of the step before, moved on,
without those who left and with those who came: ``edited`` looks at nobody else. A row that may end is left to whoever
decides; all others take their token blindly.

Does not: schedule, own blocks, or describe contexts and verify rows. Torch-free.
Source: own; the idea is that of the steady path of input preparation, one level up.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from engine.executor.live import LiveRequest
from engine.llm_request import LlmRequest, RequestState

Run = tuple[int, int, int]  # first row before, first row now, number of rows

# Which line of ``DecodeRows.facts`` holds what.
_SLOT: Final = 0
_START: Final = 1
_LAST_START: Final = 2
_STOPS_AT_EOS: Final = 3
_IS_WATCHED: Final = 4


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DecodeRows:
    """The rows in row order; what happens later to their requests changes nothing here.

    appends: add a token to each request. facts: what is known of each row, a line each: slot; position; position of the
    row whose sample is the request's last token; whether the ids of the model end it; whether every token must be
    looked at. One array, because the rows of a step are cut out of another's and joined. Shapes: facts [5, rows] int64.
    """

    requests: tuple[LlmRequest, ...]
    appends: tuple[Callable[[int], None], ...]
    facts: np.ndarray

    @property
    def slots(self) -> np.ndarray:
        """Sequence slots. Shapes: [rows]."""
        return self.facts[_SLOT]

    @property
    def starts(self) -> np.ndarray:
        """Positions of the rows. Shapes: [rows]."""
        return self.facts[_START]

    @property
    def num_left(self) -> np.ndarray:
        """How many rows of each request may follow. Shapes: [rows]."""
        return self.facts[_LAST_START] - self.facts[_START]

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.requests)

    def between(self, start: int, end: int) -> "DecodeRows":
        """Cut out some neighbouring rows."""
        if end - start == len(self):
            return self
        return DecodeRows(self.requests[start:end], self.appends[start:end], self.facts[:, start:end])

    def moved(self) -> "DecodeRows":
        """Return the same requests' rows one position further: the same tuple of them."""
        facts = self.facts.copy()
        facts[_START] += 1
        return DecodeRows(self.requests, self.appends, facts)

    def without(self, request: LlmRequest) -> "DecodeRows":
        """Drop the row of a request that has ended; its sample is nobody's. The same object if it has none."""
        slot = request.py_seq_slot
        found: list[int] = [] if slot is None else np.flatnonzero(self.slots == slot).tolist()
        rows = [row for row in found if self.requests[row] is request]
        if not rows:
            return self
        return joined([self.between(0, rows[0]), self.between(rows[0] + 1, len(self))])

    def lacking(self, reserved: np.ndarray) -> list[int]:
        """List the rows that do not fit into what is reserved for their requests. Units: tokens, by slot."""
        found: list[int] = np.flatnonzero(self.starts >= reserved[self.slots]).tolist()
        return found

    def filling(self, tokens_per_block: int) -> list[int]:
        """List the rows that write the last position of a block."""
        found: list[int] = np.flatnonzero(self.starts % tokens_per_block == tokens_per_block - 1).tolist()
        return found

    def ending(self) -> list[int]:
        """List the rows behind which nothing is left to run."""
        found: list[int] = np.flatnonzero(self.num_left <= 0).tolist()
        return found

    def expect_tokens(self) -> None:
        """Note with the requests that a step with these rows was launched."""
        for request in self.requests:
            if request.py_batch_idx is not None:  # those without a sample on the device come first
                break
            request.py_batch_idx = request.py_seq_slot
        for request in self.requests:
            request.num_in_flight += 1
        for row in self.ending():
            self.requests[row].move_to(RequestState.GENERATION_TO_COMPLETE)

    def take(self, tokens: np.ndarray, eos_table: np.ndarray) -> list[int]:
        """Append one token to every row that cannot end by it; return the others, whose tokens are not appended.

        Shapes: tokens [rows] int32, eos_table [V] bool.
        """
        facts = self.facts
        ends_by_id = facts[_STOPS_AT_EOS] & eos_table[tokens]
        looked_at = (facts[_START] >= facts[_LAST_START]) | (facts[_IS_WATCHED] | ends_by_id).astype(bool)
        rows: list[int] = np.flatnonzero(looked_at).tolist()
        values: list[int] = tokens.tolist()
        begin = 0
        for end in (*rows, len(values)):
            some = slice(begin, end)
            for request, append, token in zip(self.requests[some], self.appends[some], values[some], strict=True):
                request.num_in_flight -= 1
                append(token)
            begin = end + 1
        for row in rows:
            self.requests[row].num_in_flight -= 1
        return rows

    def check(self, live: Mapping[int, LiveRequest], eos_ids: frozenset[int]) -> None:
        """Look at every request again."""
        again = look_at(self.requests, live, eos_ids)
        assert np.array_equal(self.facts, again.facts), "what is known of a row is not what its request says"
        assert self.appends == again.appends, "a row whose tokens would go elsewhere"


def look_at(requests: Sequence[LlmRequest], live: Mapping[int, LiveRequest], eos_ids: frozenset[int]) -> DecodeRows:
    """Make the next row of each request from what it says itself. eos_ids: the model's stop ids."""
    facts: list[tuple[int, ...]] = []
    for request in requests:
        checker, start = live[request.request_id].stop_checker, request.num_tokens - 1 + request.num_in_flight
        at_eos = checker.stop_ids == eos_ids and bool(eos_ids)
        has_other_ids = bool(checker.stop_ids) and not at_eos
        is_watched = checker.reads_text or has_other_ids or request.spec.params.logprobs is not None
        assert request.py_seq_slot is not None, f"request {request.request_id} has no slot"
        facts.append((request.py_seq_slot, start, request.max_total_tokens - 2, at_eos, is_watched))
    appends = tuple([request.generated.append for request in requests])
    return DecodeRows(tuple(requests), appends, np.array(facts, dtype=np.int64).reshape(-1, 5).T)


def edited(
    rows: DecodeRows, requests: tuple[LlmRequest, ...], look: Callable[[tuple[LlmRequest, ...]], DecodeRows]
) -> DecodeRows:
    """Make the rows of these requests from others of the same step; only who has none there is looked at."""
    pieces: list[DecodeRows] = []
    done = 0
    for before, now, count in kept_runs(rows.requests, requests):
        if done < now:
            pieces.append(look(requests[done:now]))
        pieces.append(rows.between(before, before + count))
        done = now + count
    if done < len(requests) or not pieces:
        pieces.append(look(requests[done:]))
    return joined(pieces)


def joined(pieces: Sequence[DecodeRows]) -> DecodeRows:
    """Put rows behind one another."""
    if len(pieces) == 1:
        return pieces[0]
    return DecodeRows(
        tuple(itertools.chain.from_iterable([piece.requests for piece in pieces])),
        tuple(itertools.chain.from_iterable([piece.appends for piece in pieces])),
        np.concatenate([piece.facts for piece in pieces], axis=1),
    )


def kept_runs(before: tuple[LlmRequest, ...], now: tuple[LlmRequest, ...]) -> Iterator[Run]:
    """Find the requests that stand in both, in runs; all of them where both are in arrival order.

    Order: ascending in both, so of requests that changed places some are left out.
    """
    i = j = 0
    while i < len(before) and j < len(now):
        if before[i] is now[j]:
            count = _common(before[i:], now[j:])
            yield i, j, count
            i, j = i + count, j + count
        elif before[i].request_id <= now[j].request_id:
            i += 1
        else:
            j += 1


def _common(one: tuple[LlmRequest, ...], other: tuple[LlmRequest, ...]) -> int:
    # How many requests both begin with, of two that have the first in common. Tuples are compared, which is far faster
    # than asking for each.
    low, high = 1, min(len(one), len(other))
    middle = high
    while low < high:
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low

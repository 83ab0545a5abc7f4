"""Deferrals of a queue: a sequence whose records are made when somebody looks.

Thousands may wait behind one request that does not fit, and nothing new is to be said about any of them. So the queue
is held as it stands and a record is written only for those that a reader asks for. A record depends on nothing that
changes later: neither the pool nor the request's progress.

Does not: decide who waits (``capacity.py``) or word a reason.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import overload

from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest
from engine.reasons import DeferralReason
from engine.scheduled import Deferral
from engine.scheduler.block_needs import blocks_of_life


@dataclasses.dataclass(frozen=True, slots=True)
class Lack:
    """Why a request is not let in. needed: None stands for the blocks of the request's whole life."""

    reason: DeferralReason
    needed: int | None
    available: int


class QueueDeferrals(Sequence[Deferral]):
    """Some records, then one with the same lack for each request of ``queue`` from ``start`` on, then some more."""

    __slots__ = ("_kv", "_lack", "_queue", "_records", "_start", "head", "tail")

    def __init__(
        self,
        queue: Sequence[LlmRequest],
        start: int,
        lack: Lack,
        kv: KVCacheManager,
        *,
        head: tuple[Deferral, ...] = (),
        tail: tuple[Deferral, ...] = (),
    ) -> None:
        """Hold the queue, which must not change; nobody in it is looked at."""
        self._queue, self._start, self._lack, self._kv = queue, start, lack, kv
        self.head, self.tail = head, tail
        self._records: tuple[Deferral, ...] | None = None

    def around(self, head: tuple[Deferral, ...], tail: tuple[Deferral, ...]) -> "QueueDeferrals":
        """Return the same queue with other records before and behind it."""
        return QueueDeferrals(self._queue, self._start, self._lack, self._kv, head=head, tail=tail)

    @overload
    def __getitem__(self, index: int) -> Deferral: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Deferral, ...]: ...

    def __getitem__(self, index: int | slice) -> Deferral | tuple[Deferral, ...]:
        """Make one record, or some."""
        if isinstance(index, slice):
            return tuple([self[at] for at in range(*index.indices(len(self)))])
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            message = f"deferral {index} of {len(self)}"
            raise IndexError(message)
        if at < len(self.head):
            return self.head[at]
        place = self._start + at - len(self.head)
        return self._record(self._queue[place]) if place < len(self._queue) else self.tail[place - len(self._queue)]

    def __iter__(self) -> Iterator[Deferral]:
        """Make every record; the second reader finds those of the first."""
        if self._records is None:
            queue = [self._record(self._queue[place]) for place in range(self._start, len(self._queue))]
            self._records = (*self.head, *queue, *self.tail)
        return iter(self._records)

    def __len__(self) -> int:
        """Count the records, without making any."""
        return len(self.head) + len(self._queue) - self._start + len(self.tail)

    def __eq__(self, other: object) -> bool:
        """Compare as the tuple of records that it stands for."""
        if self is other:
            return True
        return isinstance(other, Sequence) and len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Hash as the tuple."""
        return hash(tuple(self))

    def __repr__(self) -> str:
        """Show the beginning: the rest may be long."""
        return f"QueueDeferrals({len(self)}: {', '.join(map(repr, self[:2]))}{', ...' if len(self) > 2 else ''})"

    def _record(self, request: LlmRequest) -> Deferral:
        lack = self._lack
        needed = blocks_of_life(request, self._kv) if lack.needed is None else lack.needed
        return Deferral(request.request_id, lack.reason, needed, lack.available)


def with_more(deferrals: Sequence[Deferral], more: Sequence[Deferral]) -> Sequence[Deferral]:
    """Put records behind others. A queue's records stay unmade; when nothing is added, it is the same object."""
    if isinstance(deferrals, QueueDeferrals):
        return deferrals.around(deferrals.head, (*deferrals.tail, *more)) if more else deferrals
    return (*deferrals, *more)


def without(deferrals: Sequence[Deferral], request_ids: frozenset[int]) -> Sequence[Deferral]:
    """Drop the records of some requests that were let in; those of a queue never were."""
    if isinstance(deferrals, QueueDeferrals):
        head, tail = without(deferrals.head, request_ids), without(deferrals.tail, request_ids)
        return deferrals.around(tuple(head), tuple(tail))
    return tuple([deferral for deferral in deferrals if deferral.request_id not in request_ids])

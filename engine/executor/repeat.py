"""Repetition: what a step has in common with the last one, so that nobody asks for it again.

Perhaps it is the last one again, and the schedulers need not be asked. They were asked with the same requests before
and let none of those that wait in. Since then the running ones have only grown, which makes room for nobody: they would
say the same. Any change of either list ends it, and so does any end. Otherwise most of its rows are those of the last
one, moved on.

Does not: run steps. Torch-free. Source: own.
"""

import functools
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from engine.executor.commit import OpenStep
from engine.executor.decode_batch import DecodeBatch
from engine.executor.decode_rows import DecodeRows, edited, look_at
from engine.executor.live import LiveRequest, RequestQueue
from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest, RequestState


class Repetition:
    """At most one repeating batch, and the rows of the last step. eos_table: [V] bool, the model's stop ids."""

    def __init__(self, *, eos_token_ids: Collection[int], vocab_size: int) -> None:
        """Start with nothing to repeat."""
        self._eos_ids = frozenset(eos_token_ids)
        self.eos_table = np.zeros(vocab_size, dtype=bool)
        self.eos_table[[i for i in self._eos_ids if i < vocab_size]] = True
        self._last: OpenStep | None = None
        self._versions = (-1, -1)  # of the queue's lists when the last step was scheduled
        self._batch: DecodeBatch | None = None
        self._standing: DecodeRows | None = None  # the next rows of those that ran last; some may have ended

    def next(self, queue: RequestQueue, kv_cache: KVCacheManager) -> DecodeBatch | None:
        """Return the batch that may run once more; None when the schedulers must be asked.

        It is made at the first repetition, so a batch that changes every step costs nothing here.
        """
        last = self._last
        if last is None or last.rows is None or self._versions != (queue.running_version, queue.waiting_version):
            return None
        if self._batch is None:
            self._batch = DecodeBatch(last.scheduled, last.rows, kv_cache)
        batch = self._batch
        return batch if batch.can_repeat and batch.choose_growth(kv_cache.num_free_blocks) else None

    def stand(self, queue: RequestQueue) -> DecodeRows | None:
        """Say where the generations stand, in arrival order; None where nothing is known from the step before."""
        if self._standing is None:
            return None
        generation = RequestState.GENERATION_IN_PROGRESS
        requests = [request for request in queue.running if request.state is generation]
        self._standing = self._edited(self._standing, tuple(requests), queue.live)
        return self._standing

    def rows_of(self, requests: tuple[LlmRequest, ...], live: Mapping[int, LiveRequest]) -> DecodeRows:
        """Count the plain decode rows of the next step, in its order."""
        standing = self._standing
        if standing is None or standing.requests != requests:
            self._standing = standing = self._edited(standing, requests, live)
        return standing

    def _edited(
        self, standing: DecodeRows | None, requests: tuple[LlmRequest, ...], live: Mapping[int, LiveRequest]
    ) -> DecodeRows:
        look = functools.partial(look_at, live=live, eos_ids=self._eos_ids)
        return look(requests) if standing is None else edited(standing, requests, look)

    def remember(self, step: OpenStep, queue: RequestQueue) -> None:
        """Note a launched step: one of generations alone, whose samples will all be on the device, may come again."""
        self._standing = None if step.rows is None else step.rows.moved()
        if not step.is_repeated:
            scheduled = step.scheduled
            is_plain = not scheduled.context_requests and not scheduled.paused_requests and not scheduled.draft_len
            self._batch, self._last = None, step if is_plain else None
            self._versions = (queue.running_version, queue.waiting_version)

    def drop(self, request: LlmRequest, open_steps: Sequence[OpenStep]) -> None:
        """Let the batch go, because a request has ended: what open steps sample for it is nobody's."""
        self._last = self._batch = None
        for step in open_steps:
            if step.rows is not None:
                step.rows = step.rows.without(request)

    def forget(self) -> None:
        """Let everything go: a step was undone, or requests have lost their slots."""
        self._last = self._batch = self._standing = None

    def check(self, kv_cache: KVCacheManager, live: Mapping[int, LiveRequest]) -> None:
        """Recompute the counts of the batch, and what is known of each row."""
        if self._batch is not None:
            self._batch.check(kv_cache)
        rows = self._standing
        if rows is not None:
            for request in rows.requests:
                rows = rows if request.request_id in live else rows.without(request)
            rows.check(live, self._eos_ids)

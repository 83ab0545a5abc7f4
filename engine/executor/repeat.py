"""Repetition: whether the next step is the last one again, so that the schedulers need not be asked.

They were asked with the same requests before and let none of those that wait in. Since then the running ones have only
grown, which makes room for nobody: they would say the same. Any change of either list ends it, and so does any end.

Does not: run steps. Torch-free. Source: own.
"""

from collections.abc import Collection, Sequence

import numpy as np

from engine.executor.commit import OpenStep
from engine.executor.decode_batch import DecodeBatch
from engine.executor.live import RequestQueue
from engine.kv_cache.manager import KVCacheManager


class Repetition:
    """At most one repeating batch."""

    def __init__(self, *, eos_token_ids: Collection[int], vocab_size: int) -> None:
        """Start with nothing to repeat."""
        self._eos_ids = frozenset(eos_token_ids)
        self._eos_table = np.zeros(vocab_size, dtype=bool)
        self._eos_table[[i for i in self._eos_ids if i < vocab_size]] = True
        self._last: OpenStep | None = None
        self._versions = (-1, -1)  # of the queue's lists when the last step was scheduled
        self._batch: DecodeBatch | None = None

    def next(self, queue: RequestQueue, kv_cache: KVCacheManager) -> DecodeBatch | None:
        """Return the batch that may run once more; None when the schedulers must be asked.

        It is made at the first repetition, so a batch that changes every step costs nothing here.
        """
        if self._last is None or self._versions != (queue.running_version, queue.waiting_version):
            return None
        if self._batch is None:
            record = self._last.scheduled
            lives = tuple([queue.live[request.request_id] for request in record.generating])
            self._batch = DecodeBatch(record, lives, kv_cache, eos_table=self._eos_table, eos_ids=self._eos_ids)
        batch = self._batch
        return batch if batch.can_repeat and batch.choose_growth(kv_cache.num_free_blocks) else None

    def remember(self, step: OpenStep, queue: RequestQueue) -> None:
        """Note a launched step: one of generations alone, whose samples will all be on the device, may come again."""
        if step.batch is None:
            scheduled = step.scheduled
            is_plain = not scheduled.context_requests and not scheduled.paused_requests and not scheduled.draft_len
            self._batch, self._last = None, step if is_plain else None
            self._versions = (queue.running_version, queue.waiting_version)

    def forget(self, open_steps: Sequence[OpenStep]) -> None:
        """Let the batch go: a row of it has ended, or a step was undone; its open steps are counted one by one."""
        self._last = self._batch = None
        for step in open_steps:
            if step.batch is not None:
                step.batch.is_intact = False

    def check(self, kv_cache: KVCacheManager) -> None:
        """Recompute the counts of the batch."""
        if self._batch is not None:
            self._batch.check(kv_cache)

"""The case's prompt, cut by the engine's own scheduler. Does not: decide anything, or begin in the cache."""

from engine.config import EngineConfig, KVCacheConfig, SchedulerConfig
from lab.exercises.exercise import Case
from lab.exercises.workload import Workload, params


def workload(case: Case | None) -> Workload:
    """Return one prompt as long as the case's uncached part, and its rows and unit."""
    found = case or {"prompt": 20, "cached": 0, "rows": 8, "unit": 4}
    length = max(1, found["prompt"] - found["cached"])
    config = EngineConfig(
        device="cpu",
        max_seq_len=length + 8,
        scheduler=SchedulerConfig(
            max_batch_size=1, max_num_tokens=found["rows"], chunking="fcfs", chunk_unit=found["unit"]
        ),
        kv_cache=KVCacheConfig(tokens_per_block=found["unit"]),
    )
    return Workload(config, ((0, [(3 * k) % 200 + 1 for k in range(length)]),), params(3))

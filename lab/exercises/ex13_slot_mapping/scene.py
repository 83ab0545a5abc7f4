"""A sequence as long as the case's, in blocks of its size: where the engine writes it. Does not: decide anything."""

from engine.config import EngineConfig, KVCacheConfig
from lab.exercises.exercise import Case
from lab.exercises.workload import Workload, params

_LONGEST = 48


def workload(case: Case | None) -> Workload:
    """Return a prompt that ends at the case's last position, and a second one that begins with its shared blocks."""
    found = case or {"positions": [7], "shared": 0, "block_size": 4}
    length = min(max([0, *found["positions"]]) + 1, _LONGEST)
    size = found["block_size"]
    first = [(3 * k) % 200 + 1 for k in range(length)]
    second = [*first[: found["shared"] * size], 201, 202]
    config = EngineConfig(device="cpu", max_seq_len=2 * _LONGEST, kv_cache=KVCacheConfig(tokens_per_block=size))
    return Workload(config, ((0, first), (2, second)), params(3))

"""A prompt that fills part of a prefill bucket in the engine: who writes the tail. Does not: decide anything."""

from engine.config import CudaGraphConfig, EngineConfig, SchedulerConfig
from lab.exercises.exercise import Case
from lab.exercises.workload import Workload, params

_LARGEST = 48


def workload(case: Case | None) -> Workload:
    """Return two prompts, as long as the rows of the step before and of this one, with a bucket of the case's size."""
    found = case or {"live": 5, "bucket": 8, "previous": 7}
    bucket = max(2, min(found["bucket"], _LARGEST))
    lengths = [max(1, min(found[name], bucket)) for name in ("previous", "live")]
    config = EngineConfig(
        device="cpu",
        max_seq_len=64,
        scheduler=SchedulerConfig(max_batch_size=2, max_num_tokens=64),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2), prefill_num_tokens=(bucket,)),
    )
    prompts = tuple((at, [(5 * at + 3 * k) % 200 + 1 for k in range(length)]) for at, length in enumerate(lengths))
    return Workload(config, prompts, params(2))
